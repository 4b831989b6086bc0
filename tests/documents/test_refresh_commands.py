"""The commands that refresh a release: a new revision of its corpus, and the clicks of a service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from documented_commands import section
from release_repositories import LIGHT, Source, first_release
from repositories import call
from terminal import Terminal

from stillhouse.core.remote.git import Git
from stillhouse.releases.refresh.plan import Level
from stillhouse.releases.tags import read_history

pytestmark = pytest.mark.long
RELEASES = "https://git.example/search/releases.git"


def test_a_release_is_refreshed_by_a_revision_and_by_clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(tmp_path / "source", tmp_path / "source-storage")
    work = first_release(tmp_path / "work", source, tmp_path / "storage", LIGHT)
    source.rewrite(1, "as was found later")
    call(source.folder, "git", "tag", "v8")
    call(source.folder, "git", "push", "--quiet", "origin", "v8")
    terminal = Terminal(tmp_path, monkeypatch, {RELEASES: str(tmp_path / "work.git")})
    [by_revision] = section("docs/releases.md", "Refresh")
    [by_clicks] = section("docs/serve.md", "Feedback becomes train queries", having="stillhouse refresh")

    terminal.type(by_revision)
    champion = read_history(Git.of(work)).champion
    assert champion and champion.record["level"] == Level.FINE_TUNE and champion.name == "v1.1.0"

    clicked = Path("clicked/qrels")
    clicked.mkdir(parents=True)
    passage = (source.folder / "corpus" / "qrels" / "train.tsv").read_text().splitlines()[1].split("\t")[1]
    clicked.with_name("queries.jsonl").write_text(
        json.dumps({"_id": "click-1", "text": "what was clicked here"}) + "\n"
    )
    (clicked / "train.tsv").write_text(f"query-id\tcorpus-id\tscore\nclick-1\t{passage}\t1\n")
    said = terminal.type(by_clicks)
    assert "fine_tune" in said
