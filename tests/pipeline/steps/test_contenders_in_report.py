"""The report's table of the systems that `select-best` compared, from real runs of a tiny model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lxml import html

from stillhouse.core.artifacts import read_manifest
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.runs import read_run

Run = Callable[..., dict[str, Path]]
MINUS = "−"


def contenders_table(page: Path) -> list[list[str]]:
    rows = html.parse(page).findall('.//table[@class="contenders"]//tr')
    return [["".join(cell.itertext()) for cell in row] for row in rows]


@pytest.fixture
def contenders(run_step: Run, small_corpus: Path, retriever: Path, tiny_model: Path) -> dict[str, Path]:
    """The inputs of `select-best`: a start, and `aside`, which comes later but first in the alphabet."""
    settings = {"model": str(tiny_model), "pooling": "cls", "query_length": 16, "passage_length": 24}
    found = {"corpus": small_corpus, "bm25": run_step("bm25", {"corpus": small_corpus}, negatives_depth=5)["bm25"]}
    for name, folder in (
        ("zero_shot", retriever),
        ("aside", run_step("fetch-model", {}, "aside", **settings)["encoder"]),
    ):
        inputs = {"corpus": small_corpus, "retriever": folder}
        found[f"candidates/{name}"] = folder
        found[f"indexes/{name}"] = run_step("index", inputs, f"{name} index", precision="fp32")["index"]
    return found


@pytest.fixture
def report_of(run_step: Run, small_corpus: Path, tmp_path: Path) -> Callable[[Path], Path]:
    def report(run: Path) -> Path:
        few = {"bootstrap_samples": 100, "randomisation_samples": 100}
        inputs = {"corpus": small_corpus, "run/best": run}
        return run_step("evaluate", inputs, f"report of {run.name}", **few)["evaluation"] / "report.html"

    return report


def best_run(run_step: Run, contenders: dict[str, Path], **settings: Any) -> tuple[dict[str, Any], Path]:
    """Choose, and return the facts of the choice with the winner's run."""
    made = run_step("select-best", contenders, precision="fp32", **settings)
    inputs = {"corpus": contenders["corpus"], **{name: made[name] for name in ("retriever", "index", "hybrid")}}
    run = run_step("retrieve", inputs, "best run", depth=24, precision="fp32")["run"]
    return read_manifest(made["retriever"]).facts, run


def shown_name(contender: str) -> str:
    name, plus, _ = contender.partition(" + ")
    return {"zero_shot": "the base model"}.get(name, name) + (" with BM25" if plus else "")


def reciprocal_ranks(corpus: Corpus, run: Path) -> Iterator[float]:
    lines = read_run(run / "dev.trec")
    for query, passage in corpus.qrels_of("dev")[["query_id", "passage_id"]].to_numpy().tolist():
        ranks = lines[(lines["query_id"] == query) & (lines["passage_id"] == passage)]["rank"].to_list()
        yield 1 / ranks[0] if ranks and ranks[0] <= 10 else 0.0


@pytest.mark.parametrize(
    ("settings", "headings"),
    [
        ({}, ["dev log-likelihood", "dev RR@10"]),
        ({"metric_for_best_model": "rr10"}, ["dev RR@10", "dev log-likelihood"]),
        ({"standard_errors": 1e6}, ["dev log-likelihood", "dev RR@10"]),
    ],
)
def test_the_report_shows_all_contenders_in_the_order_in_which_they_competed(
    run_step: Run,
    contenders: dict[str, Path],
    report_of: Callable[[Path], Path],
    settings: dict[str, Any],
    headings: list[str],
) -> None:
    facts, run = best_run(run_step, contenders, **settings)
    order = ["zero_shot", "zero_shot + BM25", "aside", "aside + BM25"]
    head, *rows = contenders_table(report_of(run))
    assert head == ["System", *headings]
    marked = {name: shown_name(name) + (" the winner" if name == facts["winner"] else "") for name in order}
    assert [row[0] for row in rows] == [marked[name] for name in order]
    for column, heading in enumerate(headings, 1):
        means = facts["dev_rr10" if "RR@10" in heading else "dev_log_likelihood"]
        assert [row[column] for row in rows] == [f"{means[name]:.3f}".replace("-", MINUS) for name in order]
    # Figures of retrievers alone are those of their own runs.
    shown = dict(zip(order, (row[head.index("dev RR@10")] for row in rows)))
    for name in ("zero_shot", "aside"):
        own = {"corpus": contenders["corpus"], "retriever": contenders[f"candidates/{name}"]}
        own["index"] = contenders[f"indexes/{name}"]
        run = run_step("retrieve", own, f"{name} run", depth=24, precision="fp32")["run"]
        values = list(reciprocal_ranks(Corpus.open(own["corpus"]), run))
        assert float(shown[name]) == pytest.approx(sum(values) / len(values), abs=6e-4)
