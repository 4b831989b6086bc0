"""The figures of an evaluation: every system measured on one split, with intervals and paired comparisons."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pandas as pd

from stillhouse.corpus.store import SOURCE, Corpus
from stillhouse.errors import InputError
from stillhouse.evaluation.measures import per_query
from stillhouse.evaluation.significance import Comparison, bootstrap_intervals, compare, compared_pairs
from stillhouse.retrieval.runs import read_run

SYNTHETIC = "synthetic"
"""The labels of queries that were made from the corpus (004's pair tasks); those of a source have `SOURCE`."""


@dataclass(frozen=True)
class Measured:
    """The queries of one split and one kind of labels: the runs that were measured, and every system's values.

    `labels` is `source` or `synthetic`. The runs lack the passage that a synthetic query was taken from. `values` maps
    each system to a frame of float64 columns named by the measures, indexed by `query_id`; all systems have the same
    queries in the same order.
    """

    split: str
    runs: Mapping[str, pd.DataFrame]
    values: Mapping[str, pd.DataFrame]
    labels: str = SOURCE

    @property
    def synthetic(self) -> bool:
        return self.labels == SYNTHETIC

    @property
    def systems(self) -> list[str]:
        return list(self.values)

    @property
    def measures(self) -> list[str]:
        return list(next(iter(self.values.values())).columns) if self.values else []

    @property
    def queries(self) -> int:
        return len(next(iter(self.values.values()))) if self.values else 0

    def means(self) -> dict[str, dict[str, float]]:
        """{system: {measure: mean over the judged queries}}."""
        return {
            system: {measure: float(np.mean(table[measure].to_numpy())) for measure in self.measures}
            for system, table in self.values.items()
        }


def measure_runs(
    corpus: Corpus, runs: Mapping[str, Path], split: str, measures: list[ir_measures.Measure]
) -> list[Measured]:
    """Measures `<split>.trec` of every run folder against the split's qrels, source queries and synthetic ones apart.

    Returns one `Measured` a kind of labels that the split has, those of the source first; none without qrels. A
    synthetic query is a sentence of a passage: that passage is left out of its ranking unless it is the relevant one.
    `runs` maps a system to its run folder. Raises `InputError` when a run file is missing or damaged.
    """
    qrels = corpus.qrels_of(split)
    if qrels.empty:
        return []
    queries = corpus.queries_of(split)
    made = queries["query_id"][queries["origin"] != SOURCE]
    is_made = qrels["query_id"].isin(made)
    kinds = {SOURCE: qrels[~is_made], SYNTHETIC: qrels[is_made]}
    found = {
        system: _without_own_passages(read_run(folder / f"{split}.trec"), queries, qrels)
        for system, folder in runs.items()
    }
    result = []
    for labels, judged in kinds.items():
        if judged.empty:
            continue
        own, values = {}, {}
        for system, folder in runs.items():
            run = found[system]
            own[system] = run[run["query_id"].isin(judged["query_id"])]
            try:
                values[system] = per_query(judged, own[system], measures)
            except InputError as error:
                raise InputError(f"{folder / split}.trec: {error}; make the run again") from None
        result.append(Measured(split, own, values, labels))
    return result


def _without_own_passages(run: pd.DataFrame, queries: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """The run without the passage that each query was taken from, where that is not a relevant one."""
    taken = queries.loc[queries["taken_from"] != "", ["query_id", "taken_from"]]
    if taken.empty:
        return run
    own = pd.MultiIndex.from_frame(taken)
    own = own.difference(pd.MultiIndex.from_frame(qrels.loc[qrels["relevance"] > 0, ["query_id", "passage_id"]]))
    return run[~pd.MultiIndex.from_frame(run[["query_id", "passage_id"]]).isin(own)].reset_index(drop=True)


def by_origin(corpus: Corpus, measured: Measured) -> dict[str, dict[str, dict[str, float]]]:
    """{origin: {system: {measure: mean}}} over the queries of each origin, in alphabetical order of origins."""
    origin_of = corpus.queries.set_index("query_id")["origin"]
    result: dict[str, dict[str, dict[str, float]]] = {}
    for system, table in measured.values.items():
        for origin, values in table.groupby(origin_of.reindex(table.index).to_numpy()):
            means = {measure: float(np.mean(values[measure].to_numpy())) for measure in measured.measures}
            result.setdefault(str(origin), {})[system] = means
    return result


def intervals(measured: Measured, samples: int, seed: int) -> dict[str, dict[str, list[float]]]:
    """{system: {measure: [low, high]}}: 95 % bootstrap intervals of the means."""
    values_QV = np.concatenate([table.to_numpy() for table in measured.values.values()], axis=1)
    low_V, high_V = bootstrap_intervals(values_QV, samples, seed)
    bounds = iter(zip(low_V, high_V))
    return {
        system: {measure: [_stable(value) for value in next(bounds)] for measure in measured.measures}
        for system in measured.systems
    }


def comparisons(
    measured: Measured, *, bootstrap_samples: int, randomisation_samples: int, seed: int
) -> dict[tuple[str, str], dict[str, Comparison]]:
    """{(system, baseline): {measure: comparison}}; Holm's correction is over the pairs, for each measure apart."""
    pairs = compared_pairs(measured.systems)
    result: dict[tuple[str, str], dict[str, Comparison]] = {pair: {} for pair in pairs}
    for measure in measured.measures if pairs else []:
        values = {system: table[measure].to_numpy() for system, table in measured.values.items()}
        differences_QC = np.stack([values[system] - values[baseline] for system, baseline in pairs], axis=1)
        found = compare(
            differences_QC, bootstrap_samples=bootstrap_samples, randomisation_samples=randomisation_samples, seed=seed
        )
        for pair, comparison in zip(pairs, found):
            numbers = {name: _stable(value) for name, value in dataclasses.asdict(comparison).items()}
            result[pair][measure] = Comparison(**numbers)
    return result


def significance_json(found: Mapping[tuple[str, str], Mapping[str, Comparison]]) -> dict[str, Any]:
    """{system: {baseline: {measure: {difference, low, high, p-values}}}}."""
    result: dict[str, Any] = {}
    for (system, baseline), by_measure in found.items():
        plain = {measure: dataclasses.asdict(comparison) for measure, comparison in by_measure.items()}
        result.setdefault(system, {})[baseline] = plain
    return result


def per_query_table(corpus: Corpus, parts: Iterable[Measured]) -> pd.DataFrame:
    """`split`, `system`, `query_id`, `origin` and one column a measure, in the order of parts, systems, judgements."""
    tables = [
        values.reset_index().assign(split=measured.split, system=system)
        for measured in parts
        for system, values in measured.values.items()
    ]
    table = pd.concat(tables, ignore_index=True)
    table["origin"] = corpus.queries.set_index("query_id")["origin"].reindex(table["query_id"]).to_numpy()
    keys = ["split", "system", "query_id", "origin"]
    return table[keys + [column for column in table.columns if column not in keys]]


def _stable(value: float) -> float:
    """Six significant digits: what is left does not depend on how a machine orders its sums."""
    return float(f"{float(value):.6g}")
