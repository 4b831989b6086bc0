"""Passages of another source as distractors, which are searched but answer no query (Chang et al. §4.4, Table 6)."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from stillhouse.corpus.digest_numbers import digests_of
from stillhouse.corpus.sources.reqa import candidates_of
from stillhouse.corpus.sources.rows import LeftOut, NotProse, Passage, Rejected, Row, Source, whole

PLACE = "distractors"
"""The prefix of the distractors' file names in `rejected.parquet`."""
PREFIX = "distractor:"
"""The prefix of distractor ids."""


def with_distractors(source: Source, other: Source, most: int | None, seed: int, language: str) -> Source:
    """The source plus a seeded sample of at most `most` (None = all) passages of `other`, without its labels.

    If the passages of the source are ReQA candidates, so are the distractors: one per sentence. A distractor with the
    text of a passage of the source is left out, since it would answer that passage's queries.
    """

    def rows() -> Iterator[Row]:
        texts: set[bytes] = set()  # their digests, since the texts of a whole source would not fit into memory
        for row in source.rows():
            if isinstance(row, Passage):
                texts.add(digests_of([row.text]).tobytes())
            yield row
        yield from _sample(_distractors(other, texts, source.candidates and not other.candidates, language), most, seed)

    files = source.files | {f"{PLACE}/{name}": path for name, path in other.files.items()}
    identity = "+".join(filter(None, (source.identity, other.identity)))
    return dataclasses.replace(source, files=files, parts=whole(rows), identity=identity)


def _distractors(other: Source, texts: set[bytes], by_sentence: bool, language: str) -> Iterator[Row]:
    for row in other.rows():
        if isinstance(row, Rejected):
            if row.kind in ("passage", "line"):
                yield row._replace(where=f"{PLACE}/{row.where}")
        elif isinstance(row, NotProse):
            # The candidates of a passage have other ids, so this row has no effect on them.
            yield row._replace(id=PREFIX + row.id, where=f"{PLACE}/{row.where}")
        elif not isinstance(row, Passage):
            continue
        elif digests_of([row.text]).tobytes() in texts:
            yield LeftOut("passage", "distractor with the text of a passage of the source")
        else:
            article = PREFIX + row.article_id if row.article_id else ""
            named = row._replace(id=PREFIX + row.id, article_id=article, where=f"{PLACE}/{row.where}")
            # A passage without text has no sentence; it passes unchanged and is rejected as empty.
            yield from candidates_of(named, language) if by_sentence and row.text.strip() else (named,)


def _sample(rows: Iterator[Row], most: int | None, seed: int) -> Iterator[Row]:
    """All rows except passages, and a uniform sample of `most` passages.

    Holds `most` rows in memory (Vitter, "Random sampling with a reservoir", 1985, algorithm R).
    """
    if not most:
        yield from rows
        return
    random = np.random.default_rng(seed)
    kept: list[tuple[int, Passage]] = []
    count = 0
    for row in rows:
        if not isinstance(row, Passage):
            yield row
            continue
        if count < most:
            kept.append((count, row))
        elif (place := int(random.integers(count + 1))) < most:
            kept[place] = (count, row)
        count += 1
    for _, row in sorted(kept, key=lambda item: item[0]):
        yield row
    yield from (LeftOut("passage", "distractor beyond max_distractors") for _ in range(count - most))
