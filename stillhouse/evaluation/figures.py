"""The figures of an evaluation: all systems measured on one split, with intervals and paired comparisons."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.schemas import SOURCE
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.answer_matching import AnswerMatcher, texts_alone
from stillhouse.evaluation.measures import AnswerAt, Measure, cutoff, per_query
from stillhouse.evaluation.own_passages import taken_from, without
from stillhouse.evaluation.runs import places, read_run, rows_of_run
from stillhouse.evaluation.samples import Samples
from stillhouse.evaluation.significance import Comparison, bootstrap_intervals, compare, compared_pairs

SYNTHETIC = "synthetic"
"""The labels of queries made from the corpus (Chang et al.'s pair tasks); queries of the source have `SOURCE`."""


@dataclass(frozen=True)
class Measured:
    """The measured runs and every system's values, for the queries of one split and one kind of labels.

    `labels` is `source` or `synthetic`. The runs lack queries' own passages. `values` maps each system to a frame of
    float64 columns named by the measures, indexed by `query_id`; all systems have the same queries in the same order. A
    value is NaN if the query is not judged for the measure (no answers, or no qrels). If qrels name documents, the runs
    have the best passage of each document, the values are those of documents, and `of_passages` has the passages'.
    """

    split: str
    runs: dict[str, pd.DataFrame]
    values: dict[str, pd.DataFrame]
    labels: str = SOURCE
    of_passages: dict[str, pd.DataFrame] = field(default_factory=dict)

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

    def judged(self, measure: str) -> np.ndarray:
        """Which queries have a value for the measure, bool; the same for all systems."""
        return next(iter(self.values.values()))[measure].notna().to_numpy()

    def means(self) -> dict[str, dict[str, float]]:
        """{system: {measure: mean over the queries judged for it}}."""
        return {
            system: {measure: float(np.nanmean(table[measure].to_numpy())) for measure in self.measures}
            for system, table in self.values.items()
        }

    def passage_means(self) -> dict[str, dict[str, float]]:
        """`means` of `of_passages`."""
        return dataclasses.replace(self, values=self.of_passages).means()


@doing("measuring the runs")
def measure_runs(
    corpus: Corpus,
    runs: Mapping[str, Path],
    split: str,
    measures: Sequence[Measure],
    *,
    own: pd.DataFrame | None = None,
    depth: int = 0,
) -> list[Measured]:
    """Measure `<split>.trec` of every run folder, or a run file, with source queries and synthetic ones apart.

    Returns one `Measured` for each kind of labels in the split, the source's first. A query is judged for `Answer@k`
    if the split has answers to it, and for every other measure if it has qrels. If it is not judged for a measure, its
    value is NaN; a measure without judged queries is left out. A synthetic query is a sentence of a passage. That
    passage is left out of the query's ranking unless it is the relevant one, and so are the passages of `own`
    (`query_id`, `passage_id`). Of the rest, the first `depth` count, or all. If qrels name documents, a document has
    the rank of its best passage among those of other documents; `Answer@k` counts passages. `runs` maps a system to its
    run folder, or to a run file of another tool, which may have queries of both splits; of dev or made queries it may
    have none, and is not measured on them. Raises `InputError` for a run file that is missing, damaged, from another
    corpus or without any test query, and for qrels of another corpus.
    """
    ranked = [measure for measure in measures if not isinstance(measure, AnswerAt)]
    answered = [measure for measure in measures if isinstance(measure, AnswerAt)]
    qrels, queries = corpus.qrels_of(split), corpus.queries_of(split)
    _refuse_foreign_qrels(corpus, qrels, split)
    answers = corpus.answers_of(split) if answered else corpus.answers.iloc[:0]
    asked = pd.concat([qrels["query_id"] if ranked else None, answers["query_id"]]).unique()
    if not len(asked):
        return []
    made = set(queries["query_id"][queries["origin"] != SOURCE])
    kinds = {
        SOURCE: [query_id for query_id in asked if query_id not in made],
        SYNTHETIC: [query_id for query_id in asked if query_id in made],
    }
    matchers = {labels: AnswerMatcher(answers, query_ids, texts_alone(corpus)) for labels, query_ids in kinds.items()}
    left_out = pd.concat([taken_from(queries), own], ignore_index=True)
    parts = {labels: Measured(split, {}, {}, labels) for labels in kinds}
    for system, folder in runs.items():
        path = folder if folder.is_file() else folder / f"{split}.trec"
        run = read_run(path)
        _refuse_foreign_queries(corpus, run, path)
        main = kinds[SOURCE] or kinds[SYNTHETIC]
        if split == "test" and folder.is_file() and not run["query_id"].isin(main).any():
            raise InputError(
                f"{path} has no line for any of the {len(main):,} test queries of the corpus; make the run for these"
            )
        run["row"] = rows_of_run(path, run, corpus.passage_ids)
        run = without(run, left_out, qrels)
        for labels, query_ids in kinds.items():
            if not query_ids:
                continue
            chosen = run[run["query_id"].isin(query_ids)].reset_index(drop=True)
            if folder.is_file() and chosen.empty:
                continue
            judged = qrels[qrels["query_id"].isin(query_ids)]
            shown = chosen[chosen["rank"] <= depth] if depth else chosen
            found = pd.DataFrame(index=pd.Index(query_ids, name="query_id"))
            if answered:
                rows_L = shown["row"].to_numpy()
                found = answer_recall(matchers[labels], query_ids, shown, rows_L, answered)
            part, measured = parts[labels], partial(_measured, found, measures)
            part.values[system] = measured(judged, shown)
            if corpus.documents is not None and labels == SOURCE:
                part.of_passages[system] = part.values[system]
                shown = best_of_documents(chosen, corpus.documents)
                shown = shown[shown["rank"] <= depth] if depth else shown
                part.values[system] = measured(*as_documents(corpus, judged, shown))
            part.runs[system] = shown.drop(columns="row")
    return [part for part in parts.values() if part.queries and part.measures]


def _measured(found: pd.DataFrame, measures: Sequence[Measure], qrels: pd.DataFrame, run: pd.DataFrame) -> pd.DataFrame:
    """The values of all measures, in order, where `found` has those of `Answer@k`; without empty rows and columns."""
    ranked = [measure for measure in measures if not isinstance(measure, AnswerAt)]
    columns = found.join(per_query(qrels, run, ranked)) if ranked else found
    columns = columns[[str(measure) for measure in measures]]
    return columns.dropna(axis="columns", how="all").dropna(axis="index", how="all")


def best_of_documents(run: pd.DataFrame, documents_N: np.ndarray) -> pd.DataFrame:
    """The best line of each document of every query, with new ranks; `row` is the corpus row of a line."""
    lines = pd.DataFrame({"query": run["query_id"].cat.codes, "document": documents_N[run["row"]]})
    best = run.loc[~lines.duplicated().to_numpy(), :].reset_index(drop=True)
    return best.assign(rank=places(best["query_id"].cat.codes.to_numpy()))


def as_documents(corpus: Corpus, qrels: pd.DataFrame, run: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Qrels and a run of `best_of_documents` with the numbers of documents as `passage_id`.

    A document has the highest relevance of its passages.
    """
    assert corpus.documents is not None
    judged = qrels.assign(passage_id=corpus.documents[corpus.rows_of(qrels["passage_id"])])
    judged = judged.groupby(["query_id", "passage_id"], sort=False, as_index=False).agg({"relevance": "max"})
    return judged, run.assign(passage_id=corpus.documents[run["row"]])


def answer_recall(
    matcher: AnswerMatcher,
    query_ids: Sequence[str],
    run: pd.DataFrame,
    rows_L: np.ndarray,
    measures: Sequence[AnswerAt],
) -> pd.DataFrame:
    """Whether one of a query's first k passages has an answer to it (DPR's top-k accuracy); this needs no qrels.

    Returns 1 or 0 for each query and measure, NaN for a query without answers; float64, indexed by `query_id`. Every
    query with answers in the corpus counts; one without results counts 0.

    `run` has `query_id` and `rank` (from 1, without gaps), and `rows_L` is the corpus row of each line. `matcher`
    numbers queries as in `query_ids`.
    """
    index = pd.Index(query_ids, name="query_id")
    query_L, rank_L = index.get_indexer(pd.Index(run["query_id"])), run["rank"].to_numpy()
    asked = np.flatnonzero((query_L >= 0) & (rank_L <= max(measure.cutoff for measure in measures)))
    held = asked[matcher.match(query_L[asked], rows_L[asked])]
    first_Q = np.full(len(index), np.inf)
    np.minimum.at(first_Q, query_L[held], rank_L[held])
    values = {
        str(measure): np.where(matcher.has_answers, (first_Q <= measure.cutoff).astype(np.float64), np.nan)
        for measure in measures
    }
    return pd.DataFrame(values, index=index)


def missing(parts: Iterable[Measured]) -> dict[str, int]:
    """{system: how many measured queries its run has no passage for}, for the systems that lack any."""
    counts = Counter[str]()
    for part in parts:
        for system, run in part.runs.items():
            found = run["query_id"].isin(part.values[system].index)
            counts[system] += part.queries - run["query_id"][found].nunique()
    return {system: count for system, count in counts.items() if count}


def cut_short(parts: Iterable[Measured], measures: Sequence[Measure], count: int) -> dict[str, dict[str, int]]:
    """{measure: {system: depth}}: the runs that were cut above the last rank that a measure looks at.

    Passages below the cut count as not found, so R@1000 of a run with depth 200 is R@200. A run counts as cut if most
    of its queries have as many passages as the longest. BM25, which leaves out passages without a query word, ends by
    itself at different depths. `count` is the number of passages or documents that are ranked.
    """
    lengths: dict[str, list[int]] = {}
    for part in parts:
        for system, run in part.runs.items():
            lengths.setdefault(system, []).extend(run.groupby("query_id", observed=True)["rank"].max())
    # Some rankings are shorter by one, because a synthetic query's own passage was removed.
    depths = {system: max(each) for system, each in lengths.items() if each and np.median(each) >= max(each) - 1}
    short = {
        str(measure): {system: depth for system, depth in depths.items() if depth < min(cutoff(measure), count)}
        for measure in measures
    }
    return {measure: systems for measure, systems in short.items() if systems}


def _refuse_foreign_qrels(corpus: Corpus, qrels: pd.DataFrame, split: str) -> None:
    asked = qrels["query_id"].isin(corpus.queries["query_id"]).to_numpy()
    for what, there in (("query", asked), ("passage", corpus.passage_ids.find(qrels["passage_id"]) >= 0)):
        if not there.all():
            raise InputError(
                f"the {split} qrels of {corpus.folder} name {what} {qrels[f'{what}_id'][~there].iloc[0]!r}, which the "
                "corpus does not have: they belong to another corpus; run `stillhouse ingest` again"
            )


def _refuse_foreign_queries(corpus: Corpus, run: pd.DataFrame, path: Path) -> None:
    named = pd.Series(run["query_id"].cat.categories)
    unknown = named[~named.isin(corpus.queries["query_id"])]
    if len(unknown):
        raise InputError(
            f"{path} names query {unknown.iloc[0]!r}, which the corpus does not have: the run belongs to another "
            "corpus; make the run again"
        )


def by_origin(corpus: Corpus, measured: Measured) -> dict[str, dict[str, dict[str, float]]]:
    """{origin: {system: {measure: mean}}} over the queries of each origin; origins in alphabetical order."""
    origin_of = corpus.queries.set_index("query_id")["origin"]
    result: dict[str, dict[str, dict[str, float]]] = {}
    for system, table in measured.values.items():
        for origin, values in table.groupby(origin_of.reindex(table.index).to_numpy()):
            means = {measure: float(values[measure].mean()) for measure in measured.measures}
            result.setdefault(str(origin), {})[system] = means
    return result


@doing("computing confidence intervals")
def intervals(measured: Measured, samples: Samples) -> dict[str, dict[str, list[float]]]:
    """{system: {measure: [low, high]}}: 95 % bootstrap intervals of the means."""
    result: dict[str, dict[str, list[float]]] = {system: {} for system in measured.systems}
    for measure in measured.measures:
        judged = measured.judged(measure)
        values_QS = np.stack([table[measure].to_numpy()[judged] for table in measured.values.values()], axis=1)
        bounds = bootstrap_intervals(values_QS, samples.bootstrap_samples, samples.seed)
        for system, low, high in zip(measured.systems, *bounds):
            result[system][measure] = [stable(low), stable(high)]
    return result


@doing("testing the differences")
def comparisons(
    measured: Measured, samples: Samples, pairs: Sequence[tuple[str, str]] | None = None
) -> dict[tuple[str, str], dict[str, Comparison]]:
    """{(system, baseline): {measure: comparison}}; Holm's correction covers the pairs, separately for each measure.

    `pairs` defaults to `compared_pairs`.
    """
    pairs = compared_pairs(measured.systems) if pairs is None else list(pairs)
    result: dict[tuple[str, str], dict[str, Comparison]] = {pair: {} for pair in pairs}
    for measure in measured.measures if pairs else []:
        judged = measured.judged(measure)
        values = {system: table[measure].to_numpy()[judged] for system, table in measured.values.items()}
        differences_QC = np.stack([values[system] - values[baseline] for system, baseline in pairs], axis=1)
        for pair, comparison in zip(pairs, compare(differences_QC, samples)):
            numbers = {name: stable(value) for name, value in dataclasses.asdict(comparison).items()}
            result[pair][measure] = Comparison(**numbers)
    return result


def cell(mean: float, interval: Sequence[float], best: bool, change: Comparison | None) -> dict[str, Any]:
    """A mean in a table of a page, with its interval."""
    return {"mean": mean, "low": interval[0], "high": interval[1], "best": best, "change": change}


def significance_json(found: Mapping[tuple[str, str], Mapping[str, Comparison]]) -> dict[str, Any]:
    """{system: {baseline: {measure: {difference, low, high, p-values}}}}."""
    result: dict[str, Any] = {}
    for (system, baseline), by_measure in found.items():
        plain = {measure: dataclasses.asdict(comparison) for measure, comparison in by_measure.items()}
        result.setdefault(system, {})[baseline] = plain
    return result


def per_query_table(corpus: Corpus, parts: Iterable[Measured]) -> pd.DataFrame:
    """`split`, `system`, `query_id`, `origin` and one column per measure, ordered by part, system and judgement."""
    tables = [
        values.reset_index().assign(split=measured.split, system=system)
        for measured in parts
        for system, values in measured.values.items()
    ]
    table = pd.concat(tables, ignore_index=True)
    table["origin"] = corpus.queries.set_index("query_id")["origin"].reindex(table["query_id"]).to_numpy()
    keys = ["split", "system", "query_id", "origin"]
    return table[keys + [column for column in table.columns if column not in keys]]


def stable(value: float) -> float:
    """Round to six significant digits, so the result does not depend on how a machine orders its sums."""
    return float(f"{float(value):.6g}")
