"""The fingerprint of a corpus, and the difference of two corpora: passages added, changed and removed.

Passages are matched by id and compared by title and text. Only digests are in memory, 32 bytes per passage, so that
corpora of any size can be compared.

Shapes: N passages of one corpus, each with two 64-bit halves of a digest.
"""

import json
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stillhouse.core.artifacts import digest_bytes, digest_json
from stillhouse.corpus.digest_numbers import digests_of
from stillhouse.corpus.fields import present
from stillhouse.corpus.passage_ids import documents_in
from stillhouse.corpus.store import Corpus
from stillhouse.corpus.titles import SEPARATOR

PAIR = np.dtype([("high", "<u8"), ("low", "<u8")])
"""A digest that NumPy sorts and compares as one value."""
LABELS = {"queries": ("query_id", "text", "split"), "qrels": ("query_id", "passage_id", "relevance", "split")}


@dataclass(frozen=True)
class Passages:
    """The digests of a corpus's passage ids and of their texts, in corpus order."""

    ids_N: NDArray[np.void]
    texts_N: NDArray[np.void]

    @classmethod
    def of(cls, corpus: Corpus) -> Self:
        ids, texts = [np.empty(0, PAIR)], [np.empty(0, PAIR)]
        for block in corpus.passage_blocks("passage_id", "title", "text"):
            ids.append(_pairs(list(block["passage_id"])))
            both = zip(block["title"].array, block["text"].array)
            texts.append(_pairs([f"{title}{SEPARATOR}{text}" for title, text in both]))
        return cls(np.concatenate(ids), np.concatenate(texts))

    def __len__(self) -> int:
        return len(self.ids_N)


def _pairs(texts: list[str]) -> NDArray[np.void]:
    return np.ascontiguousarray(digests_of(texts)).view(PAIR).reshape(-1)


@dataclass(frozen=True)
class Difference:
    """The changes from an old corpus to a new one.

    By passage id, `added` and `changed` are rows of the new corpus, and `removed` rows of the old one. `new_texts` and
    `gone_texts` count texts regardless of ids, since a passage with only a new id needs no encoding and no training.
    """

    added: NDArray[np.int64]
    changed: NDArray[np.int64]
    removed: NDArray[np.int64]
    old: int
    new: int
    new_texts: int
    gone_texts: int
    labels_changed: bool
    fields_changed: bool = False

    @property
    def none(self) -> bool:
        """Whether both corpora hold the same passages with the same fields, queries and qrels."""
        changed = len(self.added) or len(self.changed) or len(self.removed)
        return not (changed or self.labels_changed or self.fields_changed)

    @property
    def share(self) -> float:
        """The larger of `new_texts` and `gone_texts`, as a share of the larger corpus: a change counts once."""
        return max(self.new_texts, self.gone_texts) / max(self.old, self.new, 1)

    def __str__(self) -> str:
        counts = f"{len(self.added):,} passages added, {len(self.changed):,} changed, {len(self.removed):,} removed"
        labels = ", queries or qrels changed" if self.labels_changed else ""
        labels += ", fields changed" if self.fields_changed else ""
        return f"{counts} (texts: {self.new_texts:,} new, {self.gone_texts:,} gone: {self.share:.2%}){labels}"

    def plain(self) -> dict[str, int | float | bool]:
        """As a manifest or a release records it."""
        rows = {name: len(getattr(self, name)) for name in ("added", "changed", "removed")}
        kept = ("new_texts", "gone_texts", "labels_changed", "fields_changed")
        return rows | {name: getattr(self, name) for name in kept} | {"share": round(self.share, 6)}


def fingerprint(corpus: Corpus) -> str:
    """The digest of a corpus's passages, their fields, queries and qrels, whatever their order and source."""
    passages = Passages.of(corpus)
    rows = np.stack([passages.ids_N, passages.texts_N], axis=1).view(np.uint64).reshape(len(passages), 4)
    rows = rows[np.lexsort(rows.T)]
    return digest_json([corpus.titles, digest_bytes(rows.tobytes()), _labels(corpus), *_fields(corpus)])


def difference(old: Corpus, new: Corpus) -> Difference:
    """What changed from the corpus `old` to the corpus `new`; nothing did if their fingerprints are equal."""
    before, after = Passages.of(old), Passages.of(new)
    comparable = old.titles == new.titles  # otherwise models read every passage differently
    _, old_C, new_C = np.intersect1d(before.ids_N, after.ids_N, assume_unique=True, return_indices=True)
    known, same = np.zeros((2, len(after)), dtype=np.bool_)
    known[new_C] = True
    same[new_C] = comparable & (before.texts_N[old_C] == after.texts_N[new_C])
    return Difference(
        added=np.flatnonzero(~known),
        changed=np.flatnonzero(known & ~same),
        removed=np.flatnonzero(~np.isin(before.ids_N, after.ids_N)),
        old=len(before),
        new=len(after),
        new_texts=int((~np.isin(after.texts_N, before.texts_N)).sum()) if comparable else len(after),
        gone_texts=int((~np.isin(before.texts_N, after.texts_N)).sum()) if comparable else len(before),
        labels_changed=_labels(old) != _labels(new),
        fields_changed=_fields(old) != _fields(new),
    )


def _fields(corpus: Corpus) -> list[str]:
    """The digest of the fields of all passages, without any an empty list."""
    if not corpus.field_types.names:
        return []
    ids = (id for block in corpus.passage_blocks("passage_id") for id in block["passage_id"])
    batches = (present(batch.to_pylist()) for batch in corpus.field_batches())
    digests = [_pairs([json.dumps([next(ids), row], sort_keys=True) for row in rows]) for rows in batches]
    return [digest_bytes(np.sort(np.concatenate(digests)).tobytes())]


def _labels(corpus: Corpus) -> str:
    """The digest of what training and evaluation read besides the passages."""
    found = []
    tables = {"queries": corpus.queries, "qrels": _whole_passages(corpus) if "split" in corpus.facts else corpus.qrels}
    for table, columns in LABELS.items():
        rows = tables[table][list(columns)].astype(str)
        digests = _pairs([SEPARATOR.join(row) for row in rows.itertuples(index=False)])
        found.append(digest_bytes(np.sort(digests).tobytes()))
    return digest_json(found)


def _whole_passages(corpus: Corpus) -> pd.DataFrame:
    """The qrels of a split corpus with each piece's passage: another number of pieces is no other label."""
    ids = corpus.qrels["passage_id"]
    whole = documents_in(({"passage_id": id} for id in ids), corpus.fields_at(corpus.rows_of(ids)))
    return corpus.qrels.assign(passage_id=whole).drop_duplicates()
