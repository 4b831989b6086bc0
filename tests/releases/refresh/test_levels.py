"""The whole levels on a part of the sample, with real git and DVC repositories and real but tiny trainings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from release_repositories import ARTICLES, LABELLED, Source, first_release, weights
from repositories import call, dvc

from stillhouse import cli
from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import ValidationFailed
from stillhouse.core.remote.git import Git
from stillhouse.releases import data
from stillhouse.releases.refresh.plan import Level, Thresholds
from stillhouse.releases.refresh.run import Refreshed, Request, refresh
from stillhouse.releases.tags import read_history

pytestmark = pytest.mark.long

THRESHOLDS = Thresholds(fine_tune_above=0.2, pretrain_above=0.7)
LENIENT = {"most_loss": 1.0, "alpha": 0.0}
"""The result of two training steps is chance; other tests cover what is refused."""


def test_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    source = Source(tmp_path / "source", tmp_path / "source-storage")
    work = first_release(tmp_path / "work", source, tmp_path / "storage")
    releases = str(tmp_path / "work.git")
    monkeypatch.setenv("STILLHOUSE_QUIET", "0")

    def again(revision: str = "", **more: object) -> Refreshed:
        capsys.readouterr()
        changes = {"revision": revision} if revision else {}
        request = Request(releases, tmp_path / "refreshed", source=changes, thresholds=THRESHOLDS, **more)
        return refresh(request, print)

    def champion() -> str:
        return read_history(Git.of(work)).champion.name

    # Nothing changed.
    found = again()
    assert found.plan.level == Level.NOTHING and found.outcome is None and champion() == "v1.0.0"

    # A small change, one article of eleven: only its passages are encoded, and the champion's retriever stays.
    little = source.rewrite(1, "as was found later")
    planned = again(little, plan_only=True)
    assert planned.plan.level == Level.INDEX and champion() == "v1.0.0"
    found = again(little)
    said = capsys.readouterr().err
    assert (found.plan.level, found.outcome.kind, champion()) == (Level.INDEX, "released", "v1.0.1")
    passages, encoded = map(int, re.search(r"(\d+) passages as vectors .* (\d+) of them encoded now", said).groups())
    assert 0 < encoded < passages / 4
    record = found.outcome.release.record
    was, now = (tmp_path / "refreshed" / "artifacts" / step / "retriever" for step in ("champion", "challenger_best"))
    assert weights(now) == weights(was), "the retriever stays the champion's"
    assert read_manifest(now).digest == record["artifacts"]["retriever"]["digest"]
    assert record["source"]["commit"] == little and encoded == record["difference"]["new_texts"]
    assert again(little).plan.level == Level.NOTHING, "the second time there is nothing to do"

    # A larger change: training continues from the released retriever, with new negatives and their re-ranker scores.
    more = source.rewrite(5, "which surprised many")
    found = again(more, rules=LENIENT)
    assert (found.plan.level, champion()) == (Level.FINE_TUNE, "v1.1.0"), found.sentence
    challenger = read_manifest(tmp_path / "refreshed" / "artifacts" / "challenger" / "retriever")
    assert challenger.inputs["encoder"] == record["artifacts"]["retriever"]["digest"]
    assert {"negatives", "teacher"} <= challenger.inputs.keys()

    # All articles change, but the rules ask for more test queries than there are: it is refused, once and for all.
    much = source.rewrite(ARTICLES, "or so it is said")
    found = again(much, rules={"least_queries": 1000})
    assert (found.plan.level, found.outcome.kind, champion()) == (Level.PRETRAIN, "refused", "v1.1.0"), found.sentence
    assert "too few test queries" in found.outcome.reason
    found = again(much, rules={"least_queries": 1000})
    assert "was refused before" in found.outcome.reason and "challenger]" not in capsys.readouterr().out
    flags = ["--folder", str(tmp_path / "refreshed"), "--quiet"]
    flags += ["--revision", much, "--fine-tune-above", "0.2", "--pretrain-above", "0.7", "--least-queries", "1000"]
    assert cli.main(["refresh", releases, *flags]) == 4

    # With other rules, the same corpus is tried again, with pre-training from the released encoder.
    found = again(much, rules=LENIENT)
    assert (found.plan.level, found.outcome.kind, champion()) == (Level.PRETRAIN, "released", "v2.0.0"), found.sentence
    pretraining = read_manifest(tmp_path / "refreshed" / "artifacts" / "refreshed_pretraining" / "encoder")
    assert pretraining.inputs["init"] == read_record(work, "v1.1.0")["artifacts"]["encoder"]["digest"]

    # A corpus that does not pass validation never reaches training.
    for path in source.articles()[6:]:  # their queries remain
        path.unlink()
    with pytest.raises(ValidationFailed):
        again(source.commit("Broken"))
    assert champion() == "v2.0.0"

    # After a rollback, a laptop fetches the earlier release.
    assert cli.main(["release", "rollback", "--folder", str(work), "--reason", "a trial"]) == 0
    assert champion() == "v1.1.0"
    assert cli.main(["release", "fetch", "--folder", str(work), "--target", str(tmp_path / "had")]) == 0
    had = read_manifest(tmp_path / "had" / "retriever").digest
    assert had == read_record(work, "v1.1.0")["artifacts"]["retriever"]["digest"]
    capsys.readouterr()
    assert cli.main(["release", "list", "--folder", str(work)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:8].split()[-1] for line in lines] == ["v2.0.0", "v1.1.0", "v1.0.1", "v1.0.0"]
    assert [line[0] for line in lines] == [" ", "*", " ", " "]

    # The commit of a release is a complete DVC workspace: after `dvc pull`, no stage has to run.
    laptop = tmp_path / "laptop"
    call(tmp_path, "git", "clone", "--quiet", "--branch", "main", releases, str(laptop))
    dvc(laptop, "pull")
    data.refuse_unfinished(laptop)
    assert (laptop / "artifacts" / "challenger_index" / "index" / "index.faiss").is_file()


def test_the_recipe_for_labelled_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BM25 and the released retriever teach, dev queries choose the best, and the hybrid of both is released."""
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "volume"))
    source = Source(tmp_path / "source", tmp_path / "source-storage")
    work = first_release(tmp_path / "work", source, tmp_path / "storage", **LABELLED)
    assert set(read_record(work, "v1.0.0")["artifacts"]) == {"corpus", "retriever", "index", "hybrid", "run"}
    more = source.rewrite(5, "which surprised many")
    request = Request(str(tmp_path / "work.git"), tmp_path / "refreshed", source={"revision": more}, rules=LENIENT)
    found = refresh(request)
    assert (found.plan.level, found.outcome.kind) == (Level.FINE_TUNE, "released"), found.sentence
    made = tmp_path / "refreshed" / "artifacts"
    taught = read_manifest(made / "refreshed_teacher" / "teacher").inputs
    assert taught["retriever"] == read_record(work, "v1.0.0")["artifacts"]["retriever"]["digest"]
    assert taught["bm25"] == read_manifest(made / "bm25" / "bm25").digest and "reranker" not in taught
    record = read_record(work, "v1.1.0")["artifacts"]
    for name in ("retriever", "index", "hybrid"):
        assert record[name]["digest"] == read_manifest(made / "challenger_best" / name).digest
    words = ["search", "bees", "--json"]
    for name in ("corpus", "retriever", "index", "hybrid"):
        words += [f"--{name}", str(tmp_path / "had" / name)]
    assert cli.main(["release", "fetch", "--folder", str(work), "--target", str(tmp_path / "had")]) == 0
    assert cli.main(words) == 0, "what was fetched can be searched"


def read_record(work: Path, version: str) -> dict:
    return read_history(Git.of(work)).find(version).record


def test_a_recipe_in_which_only_an_average_competes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The challenger is an average too: of the released retriever and what was trained from it."""
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "volume"))
    source = Source(tmp_path / "source", tmp_path / "source-storage")
    work = first_release(
        tmp_path / "work", source, tmp_path / "storage", graph="unlabelled", averaged={"alphas": [0.5]}
    )
    more = source.rewrite(5, "which surprised many")
    refresh(Request(str(tmp_path / "work.git"), tmp_path / "refreshed", source={"revision": more}, rules=LENIENT))
    made = tmp_path / "refreshed" / "artifacts"
    challenger = read_manifest(made / "challenger" / "retriever")
    released = read_record(work, "v1.0.0")["artifacts"]["retriever"]["digest"]
    trained = read_manifest(made / "refreshed_distilled" / "retriever")
    assert challenger.inputs["start"] == released == trained.inputs["encoder"]
    assert challenger.inputs["trained"] == trained.digest and challenger.facts["alpha"] == 0.5
