"""Training without labelled queries, as a user runs it: `ingest`, `validate`, `bm25`, `evaluate` and their output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from beir_source import write_beir
from passage_corpora import write_passages

from stillhouse.core.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.runs import write_run

Run = Callable[..., dict[str, Path]]
WORDS = ["amber", "birch", "cedar", "delta", "ember", "flint", "grove", "haven", "inlet", "jetty", "knoll", "ledge"]


def write_articles(folder: Path, articles: int = 20, sections: int = 2) -> Path:
    """Write articles with sections of two paragraphs and links to the next two articles. No sentence repeats."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)

    def paragraph() -> str:
        return " ".join(f"The {' '.join(random.choice(WORDS, 7))} {random.integers(10**9)} is here." for _ in range(2))

    with (folder / "articles.jsonl").open("w") as file:
        for n in range(articles):
            parts = [{"heading": f"h{s}", "paragraphs": [paragraph(), paragraph()]} for s in range(sections)]
            links = [f"a{(n + step) % articles}" for step in (1, 2)]
            file.write(json.dumps({"_id": f"a{n}", "title": f"Title {n}", "sections": parts, "links": links}) + "\n")
    return folder


def write_labels(folder: Path, split: str = "test", passage: str = "a{}#1") -> Path:
    judged = {split: [(f"q{n}", passage.format(n)) for n in range(5)]}
    return write_beir(folder, (), [f"who asks {n}" for n in range(5)], **judged)


def facts(folder: Path) -> dict:
    return dict(read_manifest(folder).facts)


def test_auto_makes_queries_says_so_and_every_cheap_step_runs(
    tmp_path: Path, run_step: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STILLHOUSE_QUIET", "0")
    source = write_articles(tmp_path / "source")
    corpus = run_step("ingest", {}, source=str(source))
    log = capsys.readouterr().err
    assert "THE SOURCE HAS NO TRAIN QUERIES" in log and "SYNTHETIC" in log and "labels: synthetic" in log
    assert re.search(r"synthetic test queries of 2 articles: \d ict, \d bfs", log)
    found = facts(corpus["corpus"])
    assert (found["labels"], found["pair_tasks"], found["verbatim"]) == ("synthetic", "ict+bfs+wlp", False)
    assert found["articles_of_split"] == {"train": 16, "dev": 2, "test": 2}
    opened = Corpus.open(corpus["corpus"]).queries
    table = opened.groupby(["split", "origin"]).size()
    counted = {s: {t: n for t, n in tasks.items() if n} for s, tasks in found["pair_queries"].items()}
    assert {split: dict(table[split]) for split in counted} == counted
    assert found["queries"] == {split: sum(tasks.values()) for split, tasks in counted.items()}

    checks = run_step("validate", corpus, min_train_queries=1, min_dev_queries=1, min_test_queries=1)
    assert facts(checks["validation"])["passed"], facts(checks["validation"])["failed"]
    lexical = run_step("bm25", corpus)
    result = run_step("evaluate", corpus | {"run/bm25": lexical["run"]})["evaluation"]
    assert f"{found['queries']['test']} SYNTHETIC test queries" in capsys.readouterr().err
    assert facts(result)["labels"] == facts(result)["dev_labels"] == "synthetic"
    assert not (result / "metrics_synthetic.json").exists()
    page = (result / "report.html").read_text()
    assert "These queries are synthetic." in page and page.count('class="badge">synthetic') >= 3
    assert "synthetic dev RR@10" in page and "on synthetic test queries, mean" in page
    per_query = pd.read_parquet(result / "per_query.parquet")
    assert set(per_query["origin"]) <= {"ict", "bfs", "wlp"} and len(per_query) == sum(
        found["queries"][split] for split in ("dev", "test")
    )


def test_a_source_with_labels_keeps_them_unless_pairs_are_asked_for(tmp_path: Path, run_step: Run) -> None:
    source = write_labels(write_articles(tmp_path / "source"), "train")
    kept = Corpus.open(run_step("ingest", {}, into="kept", source=str(source))["corpus"])
    assert set(kept.queries["origin"]) == {"source"} and set(kept.queries["taken_from"]) == {""}
    assert facts(kept.folder)["labels"] == "source"
    made = run_step("ingest", {}, into="made", source=str(source), queries="pairs", pair_tasks=["bfs"])["corpus"]
    assert set(Corpus.open(made).queries["origin"]) == {"bfs"}
    assert (facts(made)["labels"], facts(made)["labelled_train_left_out"]) == ("synthetic", 5)
    without = run_step("ingest", {}, into="without", source=str(write_articles(tmp_path / "bare")), queries="source")
    assert facts(without["corpus"])["labels"] == "none"


@pytest.mark.parametrize("beside", [True, False])
def test_a_handful_of_labelled_test_queries_is_kept_whole_and_measured_apart(
    beside: bool, tmp_path: Path, run_step: Run
) -> None:
    source = write_articles(tmp_path / "source")
    settings = {} if beside else {"test_queries": str(write_labels(tmp_path / "few"))}
    if beside:
        write_labels(source)
    corpus = run_step("ingest", {}, source=str(source), max_test_queries=6, max_train_queries=9, **settings)
    assert facts(corpus["corpus"])["labels"] == "synthetic+source"
    test = Corpus.open(corpus["corpus"]).queries_of("test")["origin"]
    assert ((test == "source").sum(), (test != "source").sum()) == (5, 6)
    assert (Corpus.open(corpus["corpus"]).queries["split"] == "train").sum() == 9
    result = run_step("evaluate", corpus | {"run/bm25": run_step("bm25", corpus)["run"]})["evaluation"]
    found = facts(result)
    assert (found["labels"], found["test_queries"], found["synthetic_test_queries"]) == ("source", 5, 6)
    assert (found["dev_labels"], found["dev_queries"] > 0) == ("synthetic", True)
    per_query = pd.read_parquet(result / "per_query.parquet").query("split == 'test'")
    is_real = per_query["origin"] == "source"
    for name, part in (("metrics", per_query[is_real]), ("metrics_synthetic", per_query[~is_real])):
        figures = json.loads((result / f"{name}.json").read_text())["bm25"]
        assert figures["RR@10"] == pytest.approx(part["RR@10"].mean())
    page = (result / "report.html").read_text()
    assert "On queries made from the corpus" in page and "These queries are synthetic." not in page
    assert page.count('class="badge">synthetic') == 1


def test_the_passage_that_a_query_was_taken_from_is_left_out_of_its_ranking(tmp_path: Path, run_step: Run) -> None:
    """The ranking is p0, p1, p2, p3 for every query, so reciprocal ranks can be computed by hand."""
    passages = [f"p{n}" for n in range(4)]
    cases = {  # query: (origin, taken from, relevant, the rank that counts)
        "own-first": ("ict", "p0", "p1", 1),
        "own-below": ("ict", "p3", "p1", 2),
        "own-between": ("wlp", "p1", "p3", 3),
        "verbatim": ("ict", "p2", "p2", 3),
        "labelled": ("source", "", "p1", 2),
    }
    folder = tmp_path / "corpus"
    qrels = {"query_id": list(cases), "passage_id": [case[2] for case in cases.values()], "relevance": [1] * 5}
    queries = {
        "query_id": list(cases),
        "text": list(cases),
        "origin": [case[0] for case in cases.values()],
        "taken_from": [case[1] for case in cases.values()],
    }
    tables = {"queries": queries | {"split": ["test"] * 5}, "qrels": qrels | {"split": ["test"] * 5}}
    write_passages(folder, passages, tables, article_id=passages)
    run = tmp_path / "run"
    with whole_folder(run) as staging:
        order, scores = np.tile(np.arange(4, dtype=np.int32), (5, 1)), np.tile(-np.arange(4, dtype=np.float32), (5, 1))
        write_run(staging / "test.trec", list(cases), PassageIds(passages), order, scores, "bm25")
        write_manifest(staging, "bm25", {}, {}, {})
    result = run_step("evaluate", {"corpus": folder, "run/bm25": run}, bootstrap_samples=100)["evaluation"]
    values = pd.read_parquet(result / "per_query.parquet").set_index("query_id")["RR@10"]
    assert values.to_dict() == pytest.approx({query: 1 / case[3] for query, case in cases.items()})


def test_impossible_settings_are_refused_or_reported(
    tmp_path: Path, run_step: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STILLHOUSE_QUIET", "0")
    few = write_articles(tmp_path / "few", articles=2, sections=1)
    with pytest.raises(InputError, match="2 articles are too few"):
        run_step("ingest", {}, source=str(few), queries="pairs")
    corpus = run_step("ingest", {}, source=str(few))["corpus"]
    assert "NO TRAIN QUERIES" in capsys.readouterr().err and "too few" in facts(corpus)["pair_queries_not_made"]
    assert facts(corpus)["labels"] == "none"
    source = write_articles(tmp_path / "source")
    with pytest.raises(InputError, match="pair_tasks is 'bsf'"):
        run_step("ingest", {}, source=str(source), pair_tasks=["bsf"])
    with pytest.raises(InputError, match="pair_tasks is for `queries: pairs`"):
        run_step("ingest", {}, source=str(source), pair_tasks=["bfs"], queries="source")
    with pytest.raises(InputError, match=r"queries\.jsonl .* and qrels/test\.tsv"):
        run_step("ingest", {}, source=str(source), test_queries=str(tmp_path))
    foreign = write_labels(tmp_path / "foreign", passage="elsewhere{}")
    with pytest.raises(InputError, match="points to no passage"):
        run_step("ingest", {}, source=str(source), test_queries=str(foreign))
