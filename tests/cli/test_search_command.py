"""`stillhouse search` as a user sees it, with a fake retriever."""

from __future__ import annotations

import dataclasses
import io
import json
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stillhouse import cli
from stillhouse.cli import search as search_command
from stillhouse.corpus.store import write_tables
from stillhouse.search.searcher import Hit

TEXT = "Bats find their prey by listening to the echoes of their own calls, which few other animals do. " * 3


class StandIn:
    """Answers every question with the same passages."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.folders: dict[str, str] = {}
        self.where: Any = None
        self.hits = [Hit(1, 0.91234, "bats#2", "Bats", TEXT), Hit(2, 0.5, "owls#1", "", "Owls hear mice.")]

    def search(self, question: str, top: int, where: Any = None, documents: bool | None = None) -> list[Hit]:
        self.asked.append((question, top))
        self.where = where
        return self.hits[:top]


@pytest.fixture
def searcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    for folder in ("ingest/corpus", "best/retriever", "best/index", "best/hybrid"):
        Path("artifacts", folder).mkdir(parents=True)
    stand_in = StandIn()

    def open_searcher(folders: dict[str, Path]) -> StandIn:
        stand_in.folders = {name: folder.as_posix() for name, folder in folders.items()}
        return stand_in

    monkeypatch.setattr(search_command, "open_searcher", open_searcher)
    return stand_in


def test_passages_are_ranked_with_title_score_and_id(searcher: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["search", "how", "do", "bats", "hunt?"]) == 0
    assert searcher.asked == [("how do bats hunt?", 5)]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == " 1. Bats  [0.9123]  bats#2"
    assert " 2. (no title)  [0.5000]  owls#1" in lines
    assert max(map(len, lines)) <= 60
    assert " ".join(line.strip() for line in lines[1 : lines.index("")]) == TEXT.strip()


def test_without_a_question_it_prompts_until_an_empty_line(searcher: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("what is an echo\nwho hears mice\n\nnot asked\n"))
    assert cli.main(["search", "--top", "1"]) == 0
    assert searcher.asked == [("what is an echo", 1), ("who hears mice", 1)]


def test_conditions_are_those_of_the_corpus_s_fields(searcher: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = Path("artifacts/ingest/corpus")
    write_tables(corpus, {})
    assert cli.main(["search", "--where", "product=vpn", "why"]) == 2
    assert "the corpus has no fields" in capsys.readouterr().err and not searcher.asked
    pq.write_table(pa.table({"product": ["vpn"], "year": [2024]}), corpus / "fields.parquet")
    assert cli.main(["search", "--where", "products=vpn", "why"]) == 2
    assert "no field 'products'; it has product, year" in capsys.readouterr().err and not searcher.asked
    searcher.hits = [Hit(1, 0.5, "a", "A", "text", {"product": "vpn", "tags": ["x", "y"]})]
    assert cli.main(["search", "--where", "product=vpn,mail", "--where", "year>=2024", "why"]) == 0
    assert searcher.where == [{"product": ["vpn", "mail"]}, {"year": {"gte": 2024}}]
    assert "    product: vpn · tags: x, y\n" in capsys.readouterr().out


def test_a_folder_that_is_missing_is_refused(searcher: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["search", "--retriever", "artifacts/other/retriever", "why"]) == 2
    assert "--retriever artifacts/other/retriever does not exist" in capsys.readouterr().err
    assert not searcher.asked


WINNER = {
    "corpus": "artifacts/ingest/corpus",
    "retriever": "artifacts/best/retriever",
    "index": "artifacts/best/index",
    "hybrid": "artifacts/best/hybrid",
}


@pytest.mark.parametrize(
    ("words", "searched"),
    [
        ("", WINNER),
        ("--dense", WINNER | {"hybrid": None}),
        ("--corpus own", WINNER | {"corpus": "own"}),
        ("--retriever own", WINNER | {"retriever": "own", "hybrid": None}),
        ("--index own", WINNER | {"index": "own", "hybrid": None}),
        ("--retriever own --hybrid other", WINNER | {"retriever": "own", "hybrid": "other"}),
        ("--hybrid other", WINNER | {"hybrid": "other"}),
    ],
)
def test_it_searches_as_the_run_chose_unless_flags_say_otherwise(
    searcher: StandIn, words: str, searched: dict[str, str | None]
) -> None:
    """The winner's weights for BM25 suit only the winner, so another retriever or index is searched without them."""
    Path("own").mkdir()
    Path("other").mkdir()
    assert cli.main(["search", *words.split(), "why"]) == 0
    assert searcher.folders == {name: folder for name, folder in searched.items() if folder}


def test_json_is_one_object_a_question(
    searcher: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["search", "--json", "--top", "1", "how", "do", "bats", "hunt?"]) == 0
    hit = {"rank": 1, "score": 0.91234, "passage_id": "bats#2", "title": "Bats", "text": TEXT, "fields": {}}
    assert json.loads(capsys.readouterr().out) == {"question": "how do bats hunt?", "hits": [hit]}
    monkeypatch.setattr("sys.stdin", io.StringIO("what is an echo\n\n who hears mice \nlast"))
    assert cli.main(["search", "--json"]) == 0
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["question"] for line in lines] == ["what is an echo", "who hears mice", "last"]
    assert all([hit["rank"] for hit in line["hits"]] == [1, 2] for line in lines) and err == ""


NASTY = "\n\r\t\v\x00\x07\x1b\x7f\x85\x9b\u2028\u202e\u2067\ufeff[2J1. "
TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
texts = st.text(st.one_of(st.sampled_from(NASTY), st.characters(exclude_categories=["Cs"])), max_size=200)
fields = st.dictionaries(texts, st.one_of(texts, st.lists(texts, max_size=3), st.integers()), max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hits=st.lists(st.builds(Hit, st.just(1), st.floats(-1, 1), texts, texts, texts, fields), min_size=1, max_size=4),
    columns=st.integers(20, 120),
)
@example(hits=[Hit(1, 0.5, "a", "Bats\n 2. Owls  [0.9999]  b\n    forged", "x\n 3. Mice  [0.9]  c")], columns=80)
@example(hits=[Hit(1, 0.5, "\x1b[2J", "\x1b]0;title\x07", "\x9b2J \u202eevil\u2069")], columns=80)
def test_no_text_can_forge_a_hit(
    searcher: StandIn,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hits: list[Hit],
    columns: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    searcher.hits = [dataclasses.replace(hit, rank=rank) for rank, hit in enumerate(hits, 1)]
    assert cli.main(["search", "why"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for character in out.replace("\n", ""):
        assert unicodedata.category(character) not in ("Cc", "Zl", "Zp")
        assert unicodedata.bidirectional(character) not in TURNING
    begun = [line for line in out.split("\n") if line and not line.startswith("    ")]
    assert len(begun) == len(hits)
    assert all(line.startswith(f"{rank:2}. ") for rank, line in enumerate(begun, 1))
    assert cli.main(["search", "--json", "why"]) == 0
    assert json.loads(capsys.readouterr().out)["hits"] == [dataclasses.asdict(hit) for hit in searcher.hits]
