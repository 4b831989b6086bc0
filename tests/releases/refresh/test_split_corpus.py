"""A refresh of a corpus whose passages are split makes and encodes only the pieces of what has changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from families import opened, saved
from release_repositories import LIGHT, Source, first_release
from sentence_transformers.sentence_transformer.modules import Pooling

from stillhouse.corpus.store import Corpus
from stillhouse.releases.refresh.plan import Level, Thresholds
from stillhouse.releases.refresh.run import Request, refresh


def pieces(workspace: Path) -> dict[str, str]:
    passages = Corpus.open(workspace / "artifacts" / "ingest" / "corpus").passages
    return dict(zip(passages["passage_id"], passages["title"] + " " + passages["text"]))


@pytest.mark.slow
@pytest.mark.parametrize("base", ["the recipe's", "a decoder"])
def test_a_refresh_of_a_split_corpus(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STILLHOUSE_QUIET", "0")
    source, refreshed = Source(tmp_path / "source", tmp_path / "source-storage"), tmp_path / "refreshed"
    changes: dict[str, Any] = {"ingest": {"split_tokens": 24}}
    if base == "a decoder":
        decoder = saved([opened("qwen3", tmp_path / "qwen3"), Pooling(32, "lasttoken")], tmp_path / "decoder")
        changes["fetch_model"] = {"model": str(decoder), "query_length": 16, "passage_length": 32}
    work = first_release(tmp_path / "work", source, tmp_path / "storage", LIGHT, **changes)
    revision, thresholds = source.rewrite(1, "as was found later"), Thresholds(fine_tune_above=0.2, pretrain_above=0.7)
    capsys.readouterr()
    found = refresh(
        Request(str(tmp_path / "work.git"), refreshed, source={"revision": revision}, thresholds=thresholds), print
    )
    assert (found.plan.level, found.outcome.kind) == (Level.INDEX, "released")
    before, after = pieces(work), pieces(refreshed)
    assert len(before) > 400, "there are some 170 passages before they are split"
    changed = source.articles()[0].stem
    others = [
        {key: text for key, text in each.items() if not key.startswith(f"{changed}#")} for each in (before, after)
    ]
    assert others[0] == others[1] and len(others[0]) < len(after)
    said = capsys.readouterr().err
    [encoded] = re.findall(r"champion/retriever; \d+ passages as vectors of width \d+, (\d+) of them encoded now", said)
    assert int(encoded) == len(set(after.values()) - set(before.values()))
