"""`stillhouse zero-shot` on the command line: one small complete run, what it skips, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ir_measures
import pandas as pd
import pytest
from beir_source import write_beir

from stillhouse import cli
from stillhouse.core.errors import InputError
from stillhouse.evaluation.measures import measure_named
from stillhouse.experiments.zero_shot.arguments import zero_shot_arguments
from stillhouse.experiments.zero_shot.plan import checked_plan

COLOURS, ANIMALS = ("red", "green", "blue"), ("bird", "fish", "tree")


def beir(folder: Path, shift: int) -> Path:
    """Write nine passages and nine queries. The first `shift` queries ask for the next passage, not their own."""
    texts = [f"the {colour} {animal} sings" for colour in COLOURS for animal in ANIMALS]
    judged = [(f"q{i}", f"p{(i + (i < shift)) % 9}") for i in range(9)]
    return write_beir(folder, texts, [f"which {text}" for text in texts], test=judged)


def run(*words: object) -> int:
    return cli.main(["zero-shot", *map(str, words), "--bootstrap-samples", "100", "--randomisation-samples", "100"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> tuple[Path, list[object]]:
    folder = tmp_path_factory.mktemp("zero_shot")
    words: list[object] = [beir(folder / "one", 0), beir(folder / "two", 9), "--retriever", f"tiny={tiny_model}"]
    words += ["--query-length", 16, "--passage-length", 16, "--depth", 5, "--measures", "RR@5,R@5"]
    assert run(*words, "--folder", folder / "out", "--quiet") == 0
    return folder / "out", words


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_figures_are_those_of_the_runs_and_average_over_corpora(whole: tuple[Path, list[object]]) -> None:
    metrics = read(whole[0] / "metrics.json")
    assert list(metrics["corpora"]) == ["one", "two"] and list(metrics["average"]) == ["bm25", "tiny"]
    for corpus, by_system in metrics["corpora"].items():
        qrels = list(ir_measures.read_trec_qrels(_qrels(whole[0].parent / corpus)))
        for system, figures in by_system.items():
            trec = whole[0] / "artifacts" / corpus / system / "run" / "test.trec"
            expected = ir_measures.calc_aggregate(
                [measure_named(name) for name in figures], qrels, list(ir_measures.read_trec_run(str(trec)))
            )
            assert {str(name): value for name, value in expected.items()} == pytest.approx(figures)
    assert metrics["corpora"]["one"]["bm25"]["RR@5"] == 1.0
    for system in ("bm25", "tiny"):
        mean = (metrics["corpora"]["one"][system]["RR@5"] + metrics["corpora"]["two"][system]["RR@5"]) / 2
        assert metrics["average"][system]["RR@5"] == pytest.approx(mean)
        best = [
            by_system[system]["RR@5"] == max(of["RR@5"] for of in by_system.values())
            for by_system in metrics["corpora"].values()
        ]
        assert metrics["best_on"][system]["RR@5"] == sum(best)


def test_corpora_of_a_group_count_as_one(whole: tuple[Path, list[object]], capsys: pytest.CaptureFixture[str]) -> None:
    out, words = whole
    three = beir(out.parent / "apart", 5)
    assert run(three, *words, "--folder", out, "--together", "pair=one,two", "--quiet") == 0
    metrics = read(out / "metrics.json")
    of = {name: values["bm25"]["RR@5"] for name, values in metrics["corpora"].items()}
    assert list(metrics["groups"]) == ["pair"]
    assert metrics["groups"]["pair"]["bm25"]["RR@5"] == pytest.approx((of["one"] + of["two"]) / 2)
    assert metrics["average"]["bm25"]["RR@5"] == pytest.approx(((of["one"] + of["two"]) / 2 + of["apart"]) / 2)
    assert sum(metrics["best_on"][system]["RR@5"] for system in ("bm25", "tiny")) >= 2
    assert max(metrics["best_on"]["bm25"].values()) <= 2
    page = (out / "zero_shot.html").read_text(encoding="utf-8")
    assert "mean of one, two, which count as one" in page and "of 2</span>" in page
    assert run(*words, "--folder", out, "--quiet") == 0
    assert "groups" not in read(out / "metrics.json")


def _qrels(folder: Path) -> str:
    lines = (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]
    return "".join("{} 0 {} {}\n".format(*line.split("\t")) for line in lines)


def test_every_corpus_has_intervals_and_tests_and_the_values_behind_them(whole: tuple[Path, list[object]]) -> None:
    bounds, tests = read(whole[0] / "intervals.json"), read(whole[0] / "significance.json")
    table = pd.read_parquet(whole[0] / "per_query.parquet")
    assert list(table.columns) == ["corpus", "system", "query_id", "RR@5", "R@5"] and len(table) == 2 * 2 * 9
    metrics = read(whole[0] / "metrics.json")["corpora"]
    for corpus in ("one", "two"):
        assert list(tests[corpus]) == ["tiny"] and list(tests[corpus]["tiny"]) == ["bm25"]
        difference = metrics[corpus]["tiny"]["RR@5"] - metrics[corpus]["bm25"]["RR@5"]
        assert tests[corpus]["tiny"]["bm25"]["RR@5"]["difference"] == pytest.approx(difference, abs=1e-5)
        low, high = bounds[corpus]["tiny"]["RR@5"]
        assert low <= metrics[corpus]["tiny"]["RR@5"] <= high


def test_the_same_command_skips_what_is_done_and_a_new_corpus_adds_to_it(
    whole: tuple[Path, list[object]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, words = whole
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    monkeypatch.delenv("STILLHOUSE_QUIET", raising=False)
    assert run(*words, "--folder", out) == 0
    logged = capsys.readouterr().err
    for step in ("one/bm25", "one/tiny_index", "one/tiny", "two/tiny_index"):
        assert f"[{step}] skipped" in logged
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    assert run(beir(out.parent / "three", 3), *words, "--folder", out, "--baseline", "tiny") == 0
    logged = capsys.readouterr().err
    assert "[one/tiny_index] skipped" in logged and "[three/tiny_index] skipped" not in logged
    assert list(read(out / "metrics.json")["corpora"]) == ["one", "three", "two"]
    assert list(read(out / "significance.json")["one"]) == ["bm25"]


def test_a_retriever_with_weights_is_also_measured_with_bm25(
    whole: tuple[Path, list[object]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its scores are the weighted sums of BM25's on this corpus and the retriever's, by the weights as they were given;
    with --no-bm25, BM25 is only a part of the hybrid."""
    out, words = whole
    model = out / "artifacts" / "models" / "tiny" / "encoder"
    weights = {"method": "weights", "bm25": 0.25, "dense": 3.0, "depth": 9}
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "hybrid.json").write_text(json.dumps(weights))
    own = ["--retriever", f"best={model}", "--hybrid", f"best={tmp_path / 'best'}"]
    own += ["--measures", "RR@5", "--depth", "9", "--folder", tmp_path / "out"]
    assert run(words[1], *own, "--quiet") == 0
    assert list(read(tmp_path / "out" / "metrics.json")["average"]) == ["best", "best_hybrid", "bm25"]
    runs = {
        system: ir_measures_run(tmp_path / "out" / "artifacts" / "two" / system / "run" / "test.trec")
        for system in ("bm25", "best", "best_hybrid")
    }
    assert len(runs["best_hybrid"]) == 9 * 9
    for key, score in runs["best_hybrid"].items():
        assert score == pytest.approx(0.25 * runs["bm25"].get(key, 0.0) + 3.0 * runs["best"][key], abs=1e-4)
    with_bm25 = read(tmp_path / "out" / "metrics.json")["corpora"]["two"]
    monkeypatch.setenv("STILLHOUSE_QUIET", "0")
    assert run(words[1], *own, "--no-bm25") == 0
    assert "[two/best_hybrid] skipped" in capsys.readouterr().err
    assert read(tmp_path / "out" / "metrics.json")["corpora"]["two"] == {
        system: with_bm25[system] for system in ("best", "best_hybrid")
    }


def test_a_model_that_fetch_model_did_not_write_is_read_at_the_lengths_asked_for(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "modules.json").write_text("[]")
    words = [str(beir(tmp_path / "one", 1)), "--retriever", str(tmp_path / "plain"), "--passage-length", "99"]
    plan, _ = checked_plan(zero_shot_arguments(words))
    assert [plan.configs[step.name].passage_length for step in plan.models] == [99]


def ir_measures_run(path: Path) -> dict[tuple[str, str], float]:
    return {(line.query_id, line.doc_id): line.score for line in ir_measures.read_trec_run(str(path))}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none"], "none does not exist"),
        (["one", "--retriever", "m", "--hybrid", "n=a"], "--hybrid n=a: write NAME=FOLDER with a NAME of ['m']"),
        (["one", "--retriever", "m", "--hybrid", "m=a"], "a has no valid hybrid.json from `stillhouse hybrid`"),
        (["one", "a/one"], "corpus 'one': this name is already in use"),
        (["one", "--retriever", "x y=m"], "cannot be called 'x y'"),
        (["one", "--retriever", "a/m", "--retriever", "b/m"], "write NAME=MODEL"),
        (["one", "--retriever", "bm25=m"], "in use or reserved"),
        (["one", "--no-bm25"], "nothing to evaluate"),
        (["one", "--baseline", "bm26"], "did you mean 'bm25'"),
        (["one", "--measures", "nDCG10"], "'nDCG10' is not a measure"),
        (["one", "--together", "g=one,two"], "--together g=one,two: 'two' is not one of one"),
        (["one", "--together", "g=one,one"], "'one' is already in a group"),
        (["one", "--together", "one=one"], "with a name that is not in use"),
        (["one", "--depth", "0"], "--depth must be at least 1, not 0"),
        (["one", "--measures", "R@1000"], "R@1000 needs 1,000 passages but runs have 100; give --depth 1000"),
        (["one", "--max-rejected", "2"], "--max-rejected must be from 0 to 1"),
        ([], "FOLDER"),
    ],
)
def test_bad_input_is_refused_before_any_work(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "a/one"):
        Path(name).mkdir(parents=True)
    assert cli.main(["zero-shot", *words]) == InputError.exit_code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "zero-shot").exists()


def test_a_query_that_is_a_passage_does_not_find_itself(tmp_path: Path) -> None:
    """As in ArguAna, a query is a passage and asks for another one. `p2` shares a query's id only by accident."""
    passages = [{"_id": "p0", "title": "Red", "text": "bird  sings"}, {"_id": "p1", "text": "red bird answers"}]
    passages += [{"_id": "p2", "text": "green fish swims"}, {"_id": "p3", "text": "green"}]
    queries = {"p0": "red bird sings", "p2": "green fish", "p3": "GREEN"}
    judged = [("p0", "p1"), ("p2", "p2"), ("p3", "p3")]
    folder = write_beir(tmp_path / "same", passages, queries, test=judged)
    assert run(folder, "--measures", "RR@1", "--depth", 1, "--folder", tmp_path / "out", "--quiet") == 0
    values = pd.read_parquet(tmp_path / "out" / "per_query.parquet").set_index("query_id")["RR@1"]
    # p0 is left out of its own ranking, so the next passage takes its place at depth 1. p2 has another text, and
    # p3 is relevant to itself.
    assert values.to_dict() == {"p0": 1.0, "p2": 1.0, "p3": 1.0}
    first = (tmp_path / "out" / "artifacts" / "same" / "bm25" / "run" / "test.trec").read_text().splitlines()[0]
    assert first.startswith("p0 Q0 p0 1 ")
    assert "same: 2 queries" in (tmp_path / "out" / "zero_shot.html").read_text(encoding="utf-8")
