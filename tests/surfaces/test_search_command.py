"""`stillhouse search` as a person sees it, with a stand-in for the retriever."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from stillhouse import cli
from stillhouse.retrieval.search import Hit
from stillhouse.surfaces import search_command

TEXT = "Bats find their prey by listening to the echoes of their own calls, which few other animals do. " * 3


class StandIn:
    """Answers every question with the same two passages."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def search(self, question: str, top: int) -> list[Hit]:
        self.asked.append((question, top))
        return [Hit(1, 0.91234, "bats#2", "Bats", TEXT), Hit(2, 0.5, "owls#1", "", "Owls hear mice.")][:top]


@pytest.fixture
def searcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    for folder in ("ingest/corpus", "distilled/retriever", "distilled_index/index"):
        Path("artifacts", folder).mkdir(parents=True)
    stand_in = StandIn()
    monkeypatch.setattr(search_command, "open_searcher", lambda folders: stand_in)
    return stand_in


def test_passages_are_ranked_with_title_score_and_id(searcher: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["search", "how", "do", "bats", "hunt?"]) == 0
    assert searcher.asked == [("how do bats hunt?", 5)]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == " 1. Bats  [0.9123]  bats#2"
    assert " 2. (no title)  [0.5000]  owls#1" in lines
    assert max(map(len, lines)) <= 60
    assert " ".join(line.strip() for line in lines[1 : lines.index("")]) == TEXT.strip()


def test_without_a_question_it_asks_until_an_empty_line(searcher: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("what is an echo\nwho hears mice\n\nnot asked\n"))
    assert cli.main(["search", "--top", "1"]) == 0
    assert searcher.asked == [("what is an echo", 1), ("who hears mice", 1)]


def test_the_end_of_input_ends_it(searcher: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("what is an echo"))
    assert cli.main(["search"]) == 0
    assert len(searcher.asked) == 1


def test_a_folder_that_is_missing_is_refused(searcher: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["search", "--retriever", "artifacts/other/retriever", "why"]) == 2
    assert "--retriever artifacts/other/retriever does not exist" in capsys.readouterr().err
    assert not searcher.asked
