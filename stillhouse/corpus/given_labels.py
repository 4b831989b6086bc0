"""Refuses a source without passages, or whose labels were lost: generated questions never replace given ones."""

from collections import Counter
from collections.abc import Iterable

from stillhouse.core.errors import InputError
from stillhouse.corpus.cleaning import CleanCorpus
from stillhouse.corpus.schemas import SPLITS
from stillhouse.corpus.sources.rows import Rejected
from stillhouse.corpus.sources.split_names import split_in

LABELS = ("qrel", "answer", "query")


def refuse_lost(corpus: CleanCorpus) -> None:
    """Raises `InputError` if there is no passage, or if the source has labels for a split and none are usable."""
    if not len(corpus.passages):
        raise InputError(
            f"the source has no passage{_why(corpus.rejected)}; correct these rows, or name another source or format"
        )
    rows = [row for row in corpus.rejected if row.kind in LABELS]
    given = corpus.given | Counter(split for row in rows if row.kind == "qrel" and (split := _split(row)))
    taken = set(corpus.split_of.values())
    for split in SPLITS:
        if given[split] and split not in taken:
            own = [row for row in rows if _split(row) == split] or rows
            raise InputError(
                f"the source has labels of {split}, and no question could be read with one{_why(own)}; correct these "
                f"rows, or take the labels of {split} away"
            )


def _split(row: Rejected) -> str:
    """The split that the file of a row names, or ""."""
    return split_in(row.where.rpartition(":")[0].rpartition("/")[2]) or ""


def _why(rows: Iterable[Rejected]) -> str:
    """The most frequent reason, and the first row with it."""
    counts = Counter((row.kind, row.reason) for row in rows)
    if not counts:
        return ""
    (kind, reason), count = counts.most_common(1)[0]
    first = next(row for row in rows if (row.kind, row.reason) == (kind, reason))
    return f" ({count:,} × {kind}: {reason}; the first is {first.where}: {first.content})"
