"""The page of `generate-queries`: some made questions that were kept, and some that were dropped, with their passages.

Shape suffix: Q questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from stillhouse.core.pages import page_template
from stillhouse.corpus.query_generation import REASONS, MadeQuery
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.report.examples import snippet

SHOWN = 20
"""The questions of each kind on the page."""
BEGINNING = 300
"""Characters of a passage."""


def render_questions(queries: Sequence[MadeQuery], reasons: Sequence[str], corpus: Corpus, seed: int) -> str:
    """The page as text; the same questions give the same text. `reasons` come from `query_generation.reasons_to_drop`.

    Every reason has as many of the dropped questions as the others, as far as it has them.
    """
    order_Q = np.random.default_rng(seed).permutation(len(queries)).tolist()
    groups = {reason: [place for place in order_Q if reasons[place] == reason] for reason in ("", *REASONS)}
    turns = zip_longest(*(groups[reason] for reason in REASONS))
    dropped = [place for turn in turns for place in turn if place is not None][:SHOWN]
    samples = {
        "kept": groups[""][:SHOWN],
        "dropped": sorted(dropped, key=lambda place: list(REASONS).index(reasons[place])),
    }
    return page_template(Path(__file__).with_name("made_questions.html"), count="{:,}".format).render(
        made=len(queries),
        kept=len(groups[""]),
        reasons={reason: len(groups[reason]) for reason in REASONS if groups[reason]},
        meanings=REASONS,
        samples={name: _rows(queries, reasons, corpus, places) for name, places in samples.items()},
    )


def _rows(
    queries: Sequence[MadeQuery], reasons: Sequence[str], corpus: Corpus, places: Sequence[int]
) -> list[dict[str, str]]:
    rows = np.array([queries[place].row for place in places], dtype=np.int64)
    passages = corpus.passages_at(rows, "title", "text")
    return [
        {
            "text": queries[place].text,
            "reason": reasons[place],
            "heading": title or queries[place].passage_id,
            "beginning": snippet(text, BEGINNING),
        }
        for place, title, text in zip(places, passages["title"], passages["text"])
    ]
