"""Measures of a run against judgements, one value per query, computed by `ir_measures`.

Evaluators like trec_eval ignore the rank column. They sort by score in single precision and order ties by descending
passage id. Run files from Stillhouse have strictly decreasing scores, so every tool sees one order; a run of another
tool may have ties. Here the scores of every run are made from its ranks (-1, -2, ...), so figures follow the order of
the file and do not depend on passage ids.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stillhouse.core.errors import InputError
from stillhouse.core.yaml_file import shown

MEASURED_AT_ONCE = 500  # queries
ANSWER = re.compile(r"Answer@([1-9]\d*)")


@dataclass(frozen=True)
class AnswerAt:
    """`Answer@k`, DPR's top-k accuracy: 1 for a query with an answer in one of its first k passages."""

    cutoff: int

    def __str__(self) -> str:
        return f"Answer@{self.cutoff}"


Measure = ir_measures.Measure | AnswerAt


def parse_measures(names: str | Sequence[str]) -> list[Measure]:
    """The measures with these names of `ir_measures`, given as a list or separated by spaces, as in `RR@10 nDCG@10`.

    `Answer@k` (`AnswerAt`) is available too. Raises `InputError` for an unknown name, for a measure that cannot be
    computed here, for an empty list and for a repeat.
    """
    measures: list[Measure] = []
    for name in names.split() if isinstance(names, str) else names:
        if answer := ANSWER.fullmatch(name):
            measures.append(AnswerAt(int(answer[1])))
            continue
        try:
            measure = measure_named(name)
        except (LookupError, ValueError, SyntaxError, TypeError, AssertionError):
            raise InputError(
                f"measures: {name!r} is not a measure; write names as ir_measures does, for example "
                "RR@10, nDCG@10, R@100 or Answer@20"
            ) from None
        try:  # some need a parameter or a program, whose absence shows only now
            list(ir_measures.iter_calc([measure], {"q": {"p": 1}}, {"q": {"p": 1.0}}))
        except Exception as error:
            raise InputError(f"measures: {name!r} cannot be computed here ({error}); choose another") from None
        measures.append(measure)
    if not measures:
        raise InputError("measures is empty; name at least one, for example 'RR@10'")
    if len(set(measures)) < len(measures):
        raise InputError(f"measures names the same measure twice: {shown(names)}; leave one out")
    return measures


def measure_named(name: str) -> ir_measures.Measure:
    """The measure that `ir_measures` calls this, for example `AP(rel=2)@100`. Other names raise one of several errors.

    `ir_measures.parse_measure` needs classes of `ast` that Python 3.14 no longer has.
    """
    node: ast.expr = ast.parse(name, mode="eval").body
    depth: ast.expr | None = None
    settings: dict[str, Any] = {}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        depth = node.right
        node = node.left
    if isinstance(node, ast.Call) and not node.args:
        settings = {str(setting.arg): ast.literal_eval(setting.value) for setting in node.keywords}
        node = node.func
    if not isinstance(node, ast.Name):
        raise ValueError(name)
    kind = ir_measures.measures.registry[node.id]
    if depth:
        settings[kind.AT_PARAM] = ast.literal_eval(depth)
    return kind(**settings)


def cutoff(measure: Measure) -> int:
    """How many passages of a ranking a measure looks at; 0 for all."""
    return measure.cutoff if isinstance(measure, AnswerAt) else int(measure.params.get("cutoff", 0))


def per_query_of_rows(
    qrels: pd.DataFrame,
    query_ids: NDArray[np.object_],
    rows_QK: NDArray[np.int32],
    measures: Sequence[ir_measures.Measure],
) -> pd.DataFrame:
    """`per_query` for rankings of passage rows, int32 [Q, K], best first and padded with -1.

    `passage_id` in `qrels` is a row too.
    """
    query_L, rank_L = np.nonzero(rows_QK >= 0)
    lines = {"query_id": query_ids[query_L], "passage_id": rows_QK[query_L, rank_L], "rank": rank_L + 1}
    return per_query(qrels, pd.DataFrame(lines), measures)


def per_query(qrels: pd.DataFrame, run: pd.DataFrame, measures: Sequence[ir_measures.Measure]) -> pd.DataFrame:
    """The value of every measure for every judged query, in the order in which `qrels` first names the queries.

    `qrels` has `query_id`, `passage_id` and `relevance`, whose grades measures such as nDCG or `AP(rel=2)` use. `run`
    has `query_id`, `passage_id` and `rank`; lines of equal rank keep their order. Every judged query counts; one
    without results has the value 0. Unjudged queries of the run are left out. Returns float64 columns named by the
    measures, indexed by `query_id`. Raises `InputError` if the run lists a passage twice for a query.
    """
    names = [str(measure) for measure in measures]
    judged = pd.Index(qrels["query_id"].unique(), name="query_id")
    run = run[run["query_id"].isin(judged)]
    repeated_L = run.duplicated(["query_id", "passage_id"]).to_numpy()
    if repeated_L.any():
        query, passage = run[["query_id", "passage_id"]].iloc[int(np.argmax(repeated_L))]
        raise InputError(f"the run lists passage {passage!r} twice for query {query!r}")
    cutoffs, deepest = list(map(cutoff, measures)), None
    if all(cutoffs) and not any(measure.params.get("judged_only") for measure in measures):
        deepest = max(cutoffs)  # no measure looks below its cutoff
    found = _by_query(run.sort_values("rank", kind="stable"), "passage_id")
    golds, grades = _by_query(qrels, "passage_id"), _by_query(qrels, "relevance")
    records: list[tuple[str, str, float]] = []
    for first in range(0, len(judged), MEASURED_AT_ONCE):
        relevant: dict[str, dict[str, int]] = {}
        ranked: dict[str, dict[str, float]] = {}
        for query in judged[first : first + MEASURED_AT_ONCE]:
            if query in found:
                relevant[query] = dict(zip(map(str, golds[query]), map(int, grades[query])))
                ranked[query] = {str(id): -float(rank) for rank, id in enumerate(found[query][:deepest], start=1)}
        if ranked:
            values = ir_measures.iter_calc(measures, relevant, ranked)
            records += [(metric.query_id, str(metric.measure), float(metric.value)) for metric in values]
    if not records:
        return pd.DataFrame(0.0, index=judged, columns=names)
    table = pd.DataFrame.from_records(records, columns=["query_id", "measure", "value"])
    table = table.pivot(index="query_id", columns="measure", values="value")
    return table.reindex(index=judged, columns=names, fill_value=0.0).fillna(0.0).rename_axis(columns=None)


def _by_query(lines: pd.DataFrame, column: str) -> dict[str, list[Any]]:
    """{query_id: the values of a column in their order}."""
    return {
        str(query): values.tolist() for query, values in lines.groupby("query_id", sort=False, observed=True)[column]
    }
