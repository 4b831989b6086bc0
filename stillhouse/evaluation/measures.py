"""Measures of a run against judgements, one value a query, computed by `ir_measures`.

Evaluators in the manner of trec_eval ignore the rank column: they sort by score again, in less precision than the file
has, and order equal scores by passage id, descending. Two systems with the same ranking could so get different figures,
and a figure would depend on how passages are named. Here every run is handed over with scores made from its ranks
(-1, -2, ...), so that the figures follow the order of the file, whatever its scores are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import ir_measures
import pandas as pd

from stillhouse.errors import InputError

V = TypeVar("V", int, float)


def parse_measures(names: str) -> list[ir_measures.Measure]:
    """The measures named in `names`, by `ir_measures`' names with spaces between, for instance `RR@10 nDCG@10`.

    Raises `InputError` for a name that `ir_measures` does not know or cannot compute here, for none and for a repeat.
    """
    measures = []
    for name in names.split():
        try:
            measure = ir_measures.parse_measure(name)
        except (NameError, ValueError, SyntaxError, TypeError, AssertionError):
            raise InputError(
                f"measures: {name!r} is not a measure; write names as ir_measures does, for instance "
                "'RR@10 nDCG@10 R@50 R@100'"
            ) from None
        _try_out(measure)
        measures.append(measure)
    if not measures:
        raise InputError("measures is empty; name at least one, for instance 'RR@10'")
    if len(set(measures)) < len(measures):
        raise InputError(f"measures names the same measure twice: {names!r}; leave one out")
    return measures


def _try_out(measure: ir_measures.Measure) -> None:
    """Computes the measure once: some need a parameter or a program that only then turns out to be missing."""
    try:
        list(ir_measures.iter_calc([measure], {"q": {"p": 1}}, {"q": {"p": 1.0}}))
    except Exception as error:
        raise InputError(f"measures: {str(measure)!r} cannot be computed here ({error}); choose another") from None


def per_query(qrels: pd.DataFrame, run: pd.DataFrame, measures: Sequence[ir_measures.Measure]) -> pd.DataFrame:
    """The value of every measure for every judged query, in the order in which `qrels` first names the queries.

    `qrels` has `query_id`, `passage_id`, `relevance`; `run` has `query_id`, `passage_id`, `rank` (lines of equal rank
    count in the order in which they stand). Every judged query counts: one without results has the value 0. Queries
    of the run that nobody judged are left out. Returns float64 columns named by the measures, indexed by `query_id`.
    Raises `InputError` when the run lists a passage twice for a query.
    """
    judged = pd.Index(qrels["query_id"].unique(), name="query_id")
    run = run[run["query_id"].isin(judged)].sort_values("rank", kind="stable")
    repeated = run.duplicated(["query_id", "passage_id"])
    if repeated.any():
        first = run[repeated].iloc[0]
        raise InputError(f"the run lists passage {first['passage_id']!r} twice for query {first['query_id']!r}")
    place = run.groupby("query_id", sort=False).cumcount().to_numpy() + 1
    cutoffs = [int(measure.params["cutoff"]) for measure in measures if "cutoff" in measure.params]
    if len(cutoffs) == len(measures) and not any(measure.params.get("judged_only") for measure in measures):
        # No measure looks below its cutoff, and evaluators are slow on deep runs.
        within = place <= max(cutoffs)
        run, place = run[within], place[within]
    names = [str(measure) for measure in measures]
    if run.empty:
        return pd.DataFrame(0.0, index=judged, columns=names)
    ranked = _nested(run["query_id"], run["passage_id"], (-1.0 * place).tolist())
    relevant = _nested(qrels["query_id"], qrels["passage_id"], qrels["relevance"].tolist())
    found = ir_measures.iter_calc(measures, relevant, ranked)
    records = [(metric.query_id, str(metric.measure), float(metric.value)) for metric in found]
    values = pd.DataFrame.from_records(records, columns=["query_id", "measure", "value"])
    table = values.pivot(index="query_id", columns="measure", values="value")
    return table.reindex(index=judged, columns=names, fill_value=0.0).fillna(0.0).rename_axis(columns=None)


def _nested(query_ids: pd.Series, passage_ids: pd.Series, values: list[V]) -> dict[str, dict[str, V]]:
    """{query id: {passage id: value}}, the form in which the evaluators underneath take their input at once."""
    nested: dict[str, dict[str, V]] = {}
    for query_id, passage_id, value in zip(query_ids.tolist(), passage_ids.tolist(), values):
        nested.setdefault(query_id, {})[passage_id] = value
    return nested
