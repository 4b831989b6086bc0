"""The commands that refresh a release: a new revision of its corpus, the documents and the clicks of a service."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from documented_commands import section
from release_repositories import LIGHT, Source, first_release
from repositories import call
from terminal import Terminal

from stillhouse import cli
from stillhouse.corpus.store import Corpus
from stillhouse.releases.git import Git
from stillhouse.releases.refresh.plan import Rung
from stillhouse.releases.tags import read_history
from stillhouse.serving.document_log import DocumentLog

pytestmark = pytest.mark.long
RELEASES = "https://git.example/search/releases.git"
FEW = {"max_steps": 2, "batch_size": 8}


def test_a_release_is_refreshed_by_a_revision_by_documents_and_by_clicks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(tmp_path / "source", tmp_path / "source-shelf")
    work = first_release(tmp_path / "work", source, tmp_path / "shelf", LIGHT, stages={"best": "none"}, query_tower=FEW)
    source.rewrite(1, "as was found later")
    call(source.folder, "git", "tag", "v8")
    call(source.folder, "git", "push", "--quiet", "origin", "v8")
    terminal = Terminal(tmp_path, monkeypatch, {RELEASES: str(tmp_path / "work.git")})
    [by_revision] = section("docs/releases.md", "Refresh")
    [by_clicks] = section("docs/serve.md", "Feedback becomes train queries", having="stillhouse refresh")
    [by_documents] = section("docs/serve.md", "Documents become part of the next release", having="stillhouse refresh")

    terminal.type(by_revision)
    champion = read_history(Git.of(work)).champion
    assert champion and champion.record["rung"] == Rung.FINE_TUNE and champion.name == "v1.1.0"

    replaced = Corpus.open(Path("refreshed/artifacts/ingest/corpus")).passages["passage_id"].iloc[-1]
    log = DocumentLog(tmp_path / "live")
    texts = {"news/7": "Ships carry clocks.", replaced: "Another text in its place."}
    put = [{"passage_id": id, "article_id": id, "title": "", "text": text} for id, text in texts.items()]
    log.append({"put": put, "delete": []})
    log.close()
    assert cli.main(["documents", "export", str(tmp_path / "live"), "new-documents"]) == 0
    said = terminal.type(by_documents)
    champion = read_history(Git.of(work)).champion
    assert champion and "released" in said
    table = Corpus.open(Path("refreshed/artifacts/ingest/corpus")).passages.set_index("passage_id")
    assert table.loc[list(texts), "text"].to_dict() == texts
    index = pd.read_parquet("refreshed/artifacts/challenger_index/index/ids.parquet")
    assert list(index["passage_id"]) == list(table.index), "every document can be found"

    clicked = Path("clicked/qrels")
    clicked.mkdir(parents=True)
    passage = (source.folder / "corpus" / "qrels" / "train.tsv").read_text().splitlines()[1].split("\t")[1]
    clicked.with_name("queries.jsonl").write_text(
        json.dumps({"_id": "click-1", "text": "what was clicked here"}) + "\n"
    )
    (clicked / "train.tsv").write_text(f"query-id\tcorpus-id\tscore\nclick-1\t{passage}\t1\n")
    said = terminal.type(by_clicks)
    assert "fine_tune" in said
