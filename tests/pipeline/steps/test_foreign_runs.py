"""Runs of other tools as systems of `evaluate`."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from ir_measures import RR, calc_aggregate, read_trec_qrels, read_trec_run

from stillhouse import evaluate as api_evaluate
from stillhouse.cli import main
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus

QUICK = {"bootstrap_samples": 100, "randomisation_samples": 100, "measures": ("RR@10",)}
Lines = list[list[str]]


@pytest.fixture
def corpus(run_step: Callable[..., dict[str, Path]], small_corpus: Path) -> Path:
    return small_corpus


@pytest.fixture
def bm25(run_step: Callable[..., dict[str, Path]], corpus: Path) -> Path:
    return run_step("bm25", {"corpus": corpus}, depth=12)["run"]


def lines_of(bm25: Path, *splits: str) -> Lines:
    return [line.split() for split in splits for line in (bm25 / f"{split}.trec").read_text().splitlines()]


def written(path: Path, lines: Lines, separator: str = "\t", end: str = "\r\n") -> Path:
    data = "".join(separator.join(line) + end for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["solr.trec", "solr.txt.gz"])
def test_a_file_of_another_tool_is_measured_like_a_folder(name: str, corpus: Path, bm25: Path, tmp_path: Path) -> None:
    """Tabs, CRLF, lines in any order, queries of both splits, ranks from 0."""
    lines = [[*line[:3], str(int(line[3]) - 1), *line[4:]] for line in lines_of(bm25, "dev", "test")]
    random.Random(1).shuffle(lines)
    path = written(tmp_path / name, lines)
    words = ["--corpus", str(corpus), "--run", f"bm25={bm25}", "--run", f"solr={path}", "--measures", "RR@10"]
    assert main(["evaluate", *words, "--evaluation", str(tmp_path / "out")]) == 0
    for figures in ("metrics.json", "dev_metrics.json"):
        found = json.loads((tmp_path / "out" / figures).read_text())
        assert found["solr"] == found["bm25"] and found["bm25"]["RR@10"] > 0
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["facts"]["missing"] == {}


def test_missing_queries_count_as_not_found_and_are_reported(corpus: Path, bm25: Path, tmp_path: Path) -> None:
    lines = lines_of(bm25, "test")
    gone = {lines[0][0], lines[-1][0]}
    kept = [line for line in lines if line[0] not in gone]
    path = written(tmp_path / "mine.run", kept, " ", "\n")
    found = api_evaluate(corpus, {"bm25": bm25, "mine": path}, tmp_path / "out", **QUICK)
    assert found.facts["missing"] == {"mine": 2}
    table = pd.read_parquet(tmp_path / "out" / "evaluation" / "per_query.parquet")
    mine = table[(table["system"] == "mine") & (table["split"] == "test")].set_index("query_id")["RR@10"]
    assert (mine[sorted(gone)] == 0).all() and len(mine) == len(Corpus.open(corpus).queries_of("test"))
    qrels = Corpus.open(corpus).qrels_of("test")
    text = "".join(f"{row.query_id} 0 {row.passage_id} {row.relevance}\n" for row in qrels.itertuples())
    (tmp_path / "qrels").write_text(text)
    slow = calc_aggregate([RR @ 10], read_trec_qrels(str(tmp_path / "qrels")), read_trec_run(str(path)))
    assert found.figures["mine"]["RR@10"] == pytest.approx(slow[RR @ 10])
    significance = json.loads((tmp_path / "out" / "evaluation" / "significance.json").read_text())
    assert set(significance["mine"]["bm25"]["RR@10"]) >= {"difference", "randomisation_p_holm"}
    # Without a line for dev queries it has no dev figure, rather than one of 0.
    assert set(json.loads((tmp_path / "out" / "evaluation" / "dev_metrics.json").read_text())) == {"bm25"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda line: ["x9", *line[1:]], "query 'x9', which the corpus does not have.*make the run again"),
        (lambda line: [*line[:2], "p99", *line[3:]], "passage 'p99', which the corpus does not have"),
        (lambda line: line[:5], "Expected 6 columns, got 5"),
        (lambda line: [*line[:4], "high", "s"], "Row #3: .* invalid value 'high'"),
    ],
)
def test_a_line_that_is_wrong_is_named(
    change: Callable[[list[str]], list[str]], message: str, corpus: Path, bm25: Path, tmp_path: Path
) -> None:
    lines = lines_of(bm25, "test")
    lines[2] = change(lines[2])
    with pytest.raises(InputError, match=message):
        api_evaluate(corpus, {"mine": written(tmp_path / "mine.run", lines)}, tmp_path / "out", **QUICK)
