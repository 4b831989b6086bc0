"""Zero-shot figures: the same systems on many corpora, their averages and numbers of wins (CDMAE Table 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from stillhouse.core.artifacts import write_json
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.figures import Measured, comparisons, intervals, measure_runs, significance_json
from stillhouse.evaluation.measures import Measure
from stillhouse.evaluation.own_passages import same_as
from stillhouse.evaluation.samples import Samples
from stillhouse.evaluation.significance import Comparison

FILES = ("metrics.json", "intervals.json", "significance.json", "per_query.parquet")
"""The files that `write_files` may write."""


@dataclass(frozen=True, kw_only=True)
class Settings(Samples):
    """How many passages of a ranking count, the baseline of the tests ("" for none), and `groups`, the group of every
    corpus that is in one."""

    depth: int
    baseline: str
    groups: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OneCorpus:
    """All systems on one corpus. `comparisons` maps a system to its comparison with the baseline, by measure.

    Corpora of one `group` count as one in averages, like the twelve forums of BEIR's CQADupStack. `own_passages` is the
    number of test queries that are passages of the corpus; these are left out of their own rankings.
    """

    name: str
    group: str
    passages: int
    own_passages: int
    measured: Measured
    intervals: Mapping[str, Mapping[str, list[float]]]
    comparisons: Mapping[str, Mapping[str, Comparison]]


def measure_corpus(
    name: str, corpus: Corpus, runs: Mapping[str, Path], measures: Sequence[Measure], settings: Settings
) -> OneCorpus:
    """Measure every run on the corpus's test queries from the source.

    Holm's correction is over the systems, separately for each corpus and measure. A query that is a passage of the
    corpus (`own_passages.same_as`) does not find itself. Raises `InputError` if no test query is judged for one of the
    measures.
    """
    own = same_as(corpus, corpus.queries_of("test"))
    parts = measure_runs(corpus, runs, "test", measures, own=own, depth=settings.depth)
    found = [part for part in parts if not part.synthetic]
    missing = [str(measure) for measure in measures if not found or str(measure) not in found[0].measures]
    if missing:
        raise InputError(f"{name}: no test query is judged for {missing[0]}; leave out the folder or the measure")
    measured = found[0]
    others = [system for system in measured.systems if settings.baseline not in ("", system)]
    compared = comparisons(measured, settings, [(system, settings.baseline) for system in others])
    against = {system: by_measure for (system, _), by_measure in compared.items()}
    group, bounds = settings.groups.get(name, name), intervals(measured, settings)
    return OneCorpus(name, group, corpus.passage_count, len(own), measured, bounds, against)


Means = dict[str, dict[str, float]]
"""{system: {measure: value}}"""


def by_group(corpora: Sequence[OneCorpus]) -> dict[str, Means]:
    """The unweighted mean over the corpora of every group; a corpus without a group is its own group."""
    groups: dict[str, list[Means]] = {}
    for corpus in corpora:
        groups.setdefault(corpus.group, []).append(corpus.measured.means())
    return {name: mean_of(means) for name, means in groups.items()}


def mean_of(means: Sequence[Means]) -> Means:
    return pd.concat(map(pd.DataFrame, means)).groupby(level=0, sort=False).mean().to_dict()  # type: ignore[return-value]


def average(corpora: Sequence[OneCorpus]) -> Means:
    """The mean of the groups' means: every group has the same weight, whatever its size."""
    return mean_of(list(by_group(corpora).values()))


def best_on(corpora: Sequence[OneCorpus]) -> dict[str, dict[str, int]]:
    """{system: {measure: number of groups where its mean is the highest}}; ties count for each system."""
    best = [of.eq(of.max(axis=1), axis=0).astype(int) for of in map(pd.DataFrame, by_group(corpora).values())]
    return pd.concat(best).groupby(level=0, sort=False).sum().to_dict()  # type: ignore[return-value]


def metrics_json(corpora: Sequence[OneCorpus], failed: Mapping[str, str]) -> dict[str, Any]:
    """{corpora: {corpus: {system: {measure: value}}}, average, best_on}, and failed: {corpus: reason} if any did.

    Groups, which count as one corpus, are under `groups` if there are any.
    """
    named = {corpus.name for corpus in corpora}
    groups = {name: means for name, means in by_group(corpora).items() if name not in named}
    return {
        "corpora": {corpus.name: corpus.measured.means() for corpus in corpora},
        "average": average(corpora),
        "best_on": best_on(corpora),
    } | {name: dict(values) for name, values in (("groups", groups), ("failed", failed)) if values}


def write_files(corpora: Sequence[OneCorpus], failed: Mapping[str, str], settings: Settings, folder: Path) -> None:
    """Write metrics.json, intervals.json, significance.json and per_query.parquet to an empty folder."""
    write_json(folder / "metrics.json", metrics_json(corpora, failed))
    write_json(folder / "intervals.json", {corpus.name: corpus.intervals for corpus in corpora})
    tests = {
        of.name: significance_json({(system, settings.baseline): found for system, found in of.comparisons.items()})
        for of in corpora
    }
    write_json(folder / "significance.json", tests)
    tables = {(corpus.name, name): values for corpus in corpora for name, values in corpus.measured.values.items()}
    whole = pd.concat(tables, names=["corpus", "system"]).reset_index()
    arrow = pa.Table.from_pandas(whole, preserve_index=False).replace_schema_metadata(None)
    pq.write_table(arrow, folder / "per_query.parquet", compression="zstd")
