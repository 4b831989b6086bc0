"""The report's examples: single queries, and what each system ranked first for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stillhouse.corpus.store import Corpus
from stillhouse.corpus.titles import shown_title
from stillhouse.evaluation.figures import Measured
from stillhouse.evaluation.relevance import relevant_passages

SNIPPET = 170  # characters of a passage that a system ranked first
WHOLE = 900  # characters of the right passage, so that a reader finds the answer in it


@dataclass(frozen=True)
class Passage:
    """A passage as the report shows it; `heading` is its title and section, or its id if it has neither."""

    passage_id: str
    heading: str
    snippet: str


@dataclass(frozen=True)
class Answer:
    """One system's result for a query; `gold_rank` is the best rank of a relevant passage, or 0 if none was found."""

    system: str
    first: Passage | None
    right: bool
    gold_rank: int


@dataclass(frozen=True)
class Example:
    query: str
    gold: Passage
    more_gold: int
    answers: list[Answer]


def choose_queries(measured: Measured, count: int) -> list[str]:
    """The ids of `count` queries that distinguish the systems by the first measure.

    Queries that the last system answers better than the first alternate with queries that it answers worse, the largest
    difference first, so that both gains and losses show. Then come those with the widest spread over all systems. Ties
    are in the order of the judgements.
    """
    measure = measured.measures[0]
    values_SQ = np.stack([np.nan_to_num(table[measure].to_numpy()) for table in measured.values.values()])
    gain_Q, spread_Q = values_SQ[-1] - values_SQ[0], np.ptp(values_SQ, axis=0)
    better = [int(i) for i in np.lexsort((-spread_Q, -gain_Q)) if gain_Q[i] > 0]
    worse = [int(i) for i in np.lexsort((-spread_Q, gain_Q)) if gain_Q[i] < 0]
    turns = [i for pair in zip(better, worse) for i in pair]
    widest = [int(i) for i in np.argsort(-spread_Q, kind="stable")]
    chosen = list(dict.fromkeys(turns + better + worse + widest))[:count]
    query_ids = next(iter(measured.values.values())).index
    return [str(query_ids[i]) for i in chosen]


def example_queries(corpus: Corpus, measured: Measured, count: int) -> list[Example]:
    """At most `count` queries with a relevant passage in the corpus, and each system's result for them."""
    query_ids = choose_queries(measured, measured.queries)
    relevant = _gold(corpus, measured.split, query_ids)
    gold_of = {str(query_id): list(ids) for query_id, ids in relevant.groupby("query_id", sort=False)["passage_id"]}
    query_ids = [query_id for query_id in query_ids if query_id in gold_of][:count]
    text = corpus.queries_of(measured.split).set_index("query_id")["text"]
    runs = {}
    for system, run in measured.runs.items():
        run = run[run["query_id"].isin(query_ids)].sort_values("rank", kind="stable")
        runs[system] = dict(list(run.groupby("query_id", observed=True)["passage_id"]))
    first = [str(ranked.iloc[0]) for by_query in runs.values() for ranked in by_query.values() if len(ranked)]
    passages = _passages(corpus, [*(gold_of[query_id][0] for query_id in query_ids), *first])
    return [
        Example(
            query=str(text[query_id]),
            gold=_shown(passages, gold_of[query_id][0], WHOLE),
            more_gold=len(gold_of[query_id]) - 1,
            answers=[
                _answer(passages, system, by_query.get(query_id), set(gold_of[query_id]))
                for system, by_query in runs.items()
            ],
        )
        for query_id in query_ids
    ]


def with_gold(corpus: Corpus, measured: Measured) -> int:
    """How many of the judged queries have a relevant passage; the others have only answers."""
    judged = next(iter(measured.values.values())).index
    return int(judged.isin(corpus.relevant(measured.split)["query_id"]).sum())


def first_is_right(corpus: Corpus, measured: Measured) -> dict[str, int]:
    """{system: number of judged queries with a relevant passage at rank 1}."""
    judged = next(iter(measured.values.values())).index
    relevant = pd.MultiIndex.from_frame(_gold(corpus, measured.split, judged)[["query_id", "passage_id"]])
    result = {}
    for system, run in measured.runs.items():
        first = run.sort_values("rank", kind="stable").drop_duplicates("query_id")
        result[system] = int(pd.MultiIndex.from_frame(first[["query_id", "passage_id"]]).isin(relevant).sum())
    return result


def _gold(corpus: Corpus, split: str, query_ids: Sequence[str] | pd.Index) -> pd.DataFrame:
    """`query_id` and `passage_id` of the relevant passages, the most relevant first; see `relevant_passages`."""
    relevant = corpus.relevant(split).sort_values("relevance", ascending=False, kind="stable")
    relevant = relevant_passages(corpus, relevant[relevant["query_id"].isin(query_ids)])
    return relevant.assign(passage_id=corpus.passage_ids[relevant["row"].to_numpy()])


def _answer(passages: pd.DataFrame, system: str, ranked: pd.Series | None, gold: set[str]) -> Answer:
    if ranked is None:
        return Answer(system, None, False, 0)
    hits = np.flatnonzero(ranked.isin(gold).to_numpy())
    rank = int(hits[0]) + 1 if len(hits) else 0
    return Answer(system, _shown(passages, str(ranked.iloc[0])), rank == 1, rank)


def _passages(corpus: Corpus, passage_ids: Sequence[str]) -> pd.DataFrame:
    """Title, section and text of some passages, by id."""
    named = list(dict.fromkeys(passage_ids))
    return corpus.passages_at(corpus.rows_of(named), "title", "section", "text").set_axis(named)


def _shown(passages: pd.DataFrame, passage_id: str, length: int = SNIPPET) -> Passage:
    title, section, text = map(str, passages.loc[passage_id, ["title", "section", "text"]])
    return Passage(passage_id, shown_title(title, section) or passage_id, snippet(text, length))


def snippet(text: str, length: int) -> str:
    """The beginning of a text on one line, cut between words, with an ellipsis if it was cut."""
    line = " ".join(text.split())
    if len(line) <= length:
        return line
    head = line[: length - 1]
    cut = head.rsplit(" ", 1)[0] if " " in head[length // 2 :] else head
    return cut.rstrip(",.;:") + "…"
