"""Titles, headings and spans as queries, from a tree of Markdown through `ingest`, `validate` and `evaluate`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stillhouse.artifacts import read_manifest
from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError
from stillhouse.retrieval.mining.relevance import not_negatives

Run = Callable[..., dict[str, Path]]
ORIGINS = ["title", "heading", "span", "ict"]


def words(seed: int, count: int = 30) -> str:
    return " ".join(f"{name}{seed}" for name in np.random.default_rng(seed).choice(list("abcdefgh"), count)) + "."


def write_tree(folder: Path, articles: int = 20) -> Path:
    """Write articles with a lead of a table and a paragraph, a section of their own, and one that all have."""
    folder.mkdir()
    for n in range(articles):
        (folder / f"a{n}.md").write_text(
            f"# Subject {n}\n\n| k | v |\n|---|---|\n| {n} | {n} |\n\n{words(10 * n)}\n\n## Parts of {n}\n\n"
            f"{words(10 * n + 1)}\n\n{words(10 * n + 2)}\n\n## See also\n\n{words(10 * n + 3)}\n"
        )
    return folder


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("origins") / "tree")


def test_every_origin_is_made_counted_and_measured(
    tree: Path, run_step: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STILLHOUSE_QUIET", "0")
    corpus = run_step("ingest", {}, source=str(tree), queries="pairs", pair_tasks=ORIGINS, titles="left_out")
    log = capsys.readouterr().err
    assert "synthetic test queries of 2 articles: 2 ict, 2 title, 2 heading, 2 span" in log
    assert "a span stands word for word in the passage" in log
    facts = read_manifest(corpus["corpus"]).facts
    assert (facts["pair_tasks"], facts["verbatim"]) == ("ict+title+heading+span", False)
    opened = Corpus.open(corpus["corpus"])
    table = opened.queries.merge(opened.qrels, on=["query_id", "split"])
    assert {name: dict(rows["split"].value_counts()) for name, rows in table.groupby("origin")} == {
        origin: {"train": 16, "dev": 2, "test": 2} for origin in ("ict", "title", "heading", "span")
    }
    # The table comes first in the file, but the paragraph after it is the answer. "See also" is in every article.
    for origin, text, answer in (("title", "Subject {}", "a{}#2"), ("heading", "Parts of {}", "a{}#3")):
        rows = table[table["origin"] == origin]
        assert set(zip(rows["text"], rows["passage_id"])) == {(text.format(n), answer.format(n)) for n in range(20)}
    spans = table[table["origin"] == "span"]
    texts = opened.passages.set_index("passage_id")["text"]
    assert all(text in texts[id] for text, id in zip(spans["text"], spans["passage_id"]))
    assert spans["text"].str.split().str.len().between(6, 15).all()

    checks = run_step("validate", corpus)["validation"]
    counted = {origin: {"train": 16, "dev": 2, "test": 2} for origin in ("heading", "ict", "span", "title")}
    assert read_manifest(checks).facts["queries_of_origins"] == counted
    assert "<td>heading</td>" in (checks / "report.html").read_text()
    result = run_step("evaluate", corpus | {"run/bm25": run_step("bm25", corpus)["run"]})["evaluation"]
    assert set(pd.read_parquet(result / "per_query.parquet")["origin"]) == set(counted)
    page = (result / "report.html").read_text()
    assert all(f"<dt>{origin}</dt><dd>2 queries: " in page for origin in counted)
    assert "The right passage contains a span word for word" in page


def test_the_same_tree_gives_the_same_bytes_and_ict_its_own_sentences(tree: Path, run_step: Run) -> None:
    settings = {"source": str(tree), "queries": "pairs", "titles": "left_out"}
    one, two = (run_step("ingest", {}, into=name, pair_tasks=ORIGINS, **settings)["corpus"] for name in ("one", "two"))
    assert (one / "queries.parquet").read_bytes() == (two / "queries.parquet").read_bytes()
    # Every origin has its own stream of random numbers: others do not change what it draws.
    alone = run_step("ingest", {}, into="alone", pair_tasks=["ict"], pair_queries_per_article=1, **settings)["corpus"]
    both, own = (Corpus.open(folder).queries.query("origin == 'ict'") for folder in (one, alone))
    assert both["query_id"].tolist() == own["query_id"].tolist()


def test_passages_about_the_name_are_not_negatives(tree: Path, run_step: Run) -> None:
    made = run_step("ingest", {}, source=str(tree), queries="pairs", pair_tasks=ORIGINS, titles="left_out")["corpus"]
    corpus = Corpus.open(made)
    table = not_negatives(corpus).merge(corpus.queries[["query_id", "origin", "text", "taken_from"]], on="query_id")
    ids = corpus.passages["passage_id"]
    found = {origin: {} for origin in ("title", "heading", "span")}
    for origin, text, own, row in zip(table["origin"], table["text"], table["taken_from"], table["row"]):
        if origin in found:
            found[origin].setdefault((text, own.split("#")[0]), set()).add(ids[row].split("#")[1])
    assert set(map(frozenset, found["title"].values())) == {frozenset("12345")}
    assert set(map(frozenset, found["heading"].values())) == {frozenset("34")}
    assert {len(rows) for rows in found["span"].values()} == {1}


def test_a_title_that_begins_every_passage_is_not_a_query(tree: Path, run_step: Run) -> None:
    with pytest.raises(InputError, match=r"title makes no query if every passage begins with its title.*left_out"):
        run_step("ingest", {}, source=str(tree), queries="pairs", pair_tasks=["heading", "title"])
    made = run_step("ingest", {}, source=str(tree), queries="pairs", pair_tasks=["heading"])["corpus"]
    assert set(Corpus.open(made).queries["origin"]) == {"heading"}


def test_a_minimum_span_above_the_maximum_is_refused(tree: Path, run_step: Run) -> None:
    with pytest.raises(InputError, match="pair_span_min_words is 30 and pair_span_max_words 20"):
        run_step("ingest", {}, source=str(tree), queries="pairs", pair_tasks=["span"], pair_span_min_words=30)
