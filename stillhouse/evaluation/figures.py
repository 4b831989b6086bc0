"""The figures of an evaluation: every system measured on one split, with intervals and paired comparisons."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pandas as pd

from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError
from stillhouse.evaluation.measures import per_query
from stillhouse.evaluation.significance import Comparison, bootstrap_intervals, compare, compared_pairs
from stillhouse.retrieval.runs import read_run


@dataclass(frozen=True)
class Measured:
    """One split: the runs that were measured, and the per-query values of every system.

    `values` maps each system to a frame of float64 columns named by the measures, indexed by `query_id`; all systems
    have the same queries in the same order.
    """

    split: str
    runs: Mapping[str, pd.DataFrame]
    values: Mapping[str, pd.DataFrame]

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


def measure_runs(corpus: Corpus, runs: Mapping[str, Path], split: str, measures: list[ir_measures.Measure]) -> Measured:
    """Measures `<split>.trec` of every run folder against the split's qrels; nothing when the split has no qrels.

    `runs` maps a system to its run folder. Raises `InputError` when a run file is missing or damaged.
    """
    qrels = corpus.qrels_of(split)
    if qrels.empty:
        return Measured(split, {}, {})
    found, values = {}, {}
    for system, folder in runs.items():
        found[system] = read_run(folder / f"{split}.trec")
        try:
            values[system] = per_query(qrels, found[system], measures)
        except InputError as error:
            raise InputError(f"{folder / split}.trec: {error}; make the run again") from None
    return Measured(split, found, values)


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


def per_query_table(*splits: Measured) -> pd.DataFrame:
    """`split`, `system`, `query_id` and one column a measure, in the order of splits, systems and judgements."""
    parts = [
        table.reset_index().assign(split=measured.split, system=system)
        for measured in splits
        for system, table in measured.values.items()
    ]
    table = pd.concat(parts, ignore_index=True)
    keys = ["split", "system", "query_id"]
    return table[keys + [column for column in table.columns if column not in keys]]


def _stable(value: float) -> float:
    """Six significant digits: what is left does not depend on how a machine orders its sums."""
    return float(f"{float(value):.6g}")
