"""Queries on which the variants differ, as in SimLM Tables 9 and 14, but chosen by rule."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.figures import measure_runs
from stillhouse.evaluation.measures import parse_measures
from stillhouse.evaluation.report.examples import Example, example_queries
from stillhouse.experiments.comparison.table import Table


def variant_examples(table: Table, corpus: Path, runs: Mapping[str, Path]) -> list[Example]:
    """The `examples` queries on which the baseline and the best other variant differ most, with every answer.

    `runs` maps a variant to the run folder of its first seed. The baseline comes first in an example and the best of
    the others last, because the differences between these two choose the queries.
    """
    names = [row.variant.name for row in table.done if row.variant.name in runs]
    if len(names) < 2 or not table.sweep.examples:
        return []
    first = table.measures[0]
    others = sorted((n for n in names if n != table.sweep.baseline), key=lambda n: table.row(n).figures[first].mean)
    ordered = [name for name in names if name not in others] + others
    opened = Corpus.open(corpus)
    measured = measure_runs(opened, {name: runs[name] for name in ordered}, "test", parse_measures(first))
    return example_queries(opened, measured[0], table.sweep.examples)
