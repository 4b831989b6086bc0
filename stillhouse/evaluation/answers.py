"""Answer recall: the share of queries with an answer in one of the first k passages (DPR's top-k accuracy).

It needs no qrels. Every query with answers in the corpus counts; one without results counts 0. The rules for finding
an answer in a passage are in `stillhouse.evaluation.answer_matching`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from stillhouse.evaluation.answer_matching import AnswerMatcher
from stillhouse.evaluation.measures import AnswerAt


def answer_recall(
    matcher: AnswerMatcher,
    query_ids: Sequence[str],
    run: pd.DataFrame,
    rows_L: np.ndarray,
    measures: Sequence[AnswerAt],
) -> pd.DataFrame:
    """1 or 0 for each query and measure, NaN for a query without answers; float64, indexed by `query_id`.

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
