"""Late interaction (Khattab and Zaharia 2020, "ColBERT"): compares a query's tokens with a passage's, one by one.

A passage's score is the mean over the query's tokens of the highest cosine with any of its own tokens, in which rare
tokens count more: by the square root of BM25's inverse document frequency. Special tokens and the prompt do not count.
The retriever needs no training for it. Of a passage's states only the signs are stored, one bit a number: 48 bytes a
token for a width of 384, which ranks as well as the numbers themselves (docs/findings.md).

Shape suffixes: Q queries, K candidates of a query, S tokens of a query, T tokens of passages, H width of the states, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.arrays import map_array, save_array
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus, passage_text_blocks
from stillhouse.models.settings import InferenceConfig

if TYPE_CHECKING:
    from stillhouse.models.encoder import BiEncoder  # imports transformers, which would delay an answer

SIGNS, ENDS, WEIGHTS = "signs.bits", "ends.npy", "weights.npy"


class QueryReader(Protocol):
    """Reads queries token by token."""

    state_width: int

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each query, with the prompt and special tokens."""

    def states(self, ids: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """The states of each query's tokens, float32 [S, H] of length 1."""


def write_tokens(folder: Path, encoder: BiEncoder, corpus: Corpus, context: Context, config: InferenceConfig) -> None:
    """Write the signs of all passages' token states, a block of passages at a time, and how much each token counts."""
    from stillhouse.models.token_states import token_states

    folder.mkdir()
    counts: list[int] = []
    [empty] = encoder.passages([""]).ids
    found_V = np.zeros(1 + max(encoder.tokenizer.get_vocab().values()), np.int64)
    with (folder / SIGNS).open("wb") as file:
        for block in passage_text_blocks(corpus):
            texts = encoder.passages(block)
            bits: list[NDArray[np.uint8]] = [np.empty(0, np.uint8)] * len(block)
            what = f"tokens of passages {len(counts) + 1:,} to {len(counts) + len(block):,}"
            for number, states_TH in token_states(encoder, texts, context, what, config):
                bits[number] = np.packbits(states_TH > 0, axis=1)
            counts += map(len, bits)
            for each in bits:
                file.write(each.tobytes())
            for ids in texts.ids:
                found_V[list(set(ids[_shared(ids, empty) :]))] += 1
    save_array(folder / ENDS, np.cumsum(counts, dtype=np.int64))
    if encoder.reads_alike():
        weights_V = np.sqrt(np.log1p((len(counts) - found_V + 0.5) / (found_V + 0.5)))
        weights_V[encoder.tokenizer.all_special_ids] = 0
        save_array(folder / WEIGHTS, weights_V.astype(np.float32))


class LateInteraction:
    """The stored signs of all passages, and the model that reads the queries.

    All tokens count alike in a folder without their weights: of an earlier version, or of a model whose queries have
    another tokenizer. Raises `InputError` for a folder that `write_tokens` did not write with a model of this width.
    """

    def __init__(self, folder: Path, reader: QueryReader) -> None:
        self._width, self._reader = reader.state_width, reader
        row = -(-self._width // 8)
        try:
            self._ends_N = map_array(folder / ENDS, np.int64)
            weighted = (folder / WEIGHTS).is_file()
            self._weights_V = map_array(folder / WEIGHTS, np.float32) if weighted else None
            self._signs = np.memmap(folder / SIGNS, np.uint8, mode="r").reshape(-1, row)
            sound = len(self._ends_N) > 0 and len(self._signs) == self._ends_N[-1]
        except (OSError, ValueError):
            sound = False
        self._empty = reader.tokenize([""])[0]
        if not sound:
            raise InputError(f"{folder} has no token states of this retriever; run `stillhouse select-best` again")

    def scores_of(self, queries: Sequence[str], rows_QK: NDArray[np.int32]) -> NDArray[np.float32]:
        """Scores float32 [Q, K] of passages `rows_QK`, at most 1.

        Padding (-1) and passages without a token get their query's lowest score.
        """
        scores_QK = np.zeros(rows_QK.shape, dtype=np.float32)
        ids = self._reader.tokenize(queries)
        for query, states_SH in enumerate(self._reader.states(ids)):
            rows = np.maximum(rows_QK[query], 0)
            ends, begins = self._ends_N[rows], np.where(rows > 0, self._ends_N[rows - 1], 0)
            known = np.flatnonzero((rows_QK[query] >= 0) & (ends > begins))
            if not len(known) or not len(states_SH):
                continue
            ends, begins = ends[known], begins[known]
            signs = np.concatenate([self._signs[begin:end] for begin, end in zip(begins.tolist(), ends.tolist())])
            bits_TH = np.unpackbits(signs, axis=1, count=self._width).astype(np.float32)
            # The cosine with signs of ±1: Σ state · (2 bit - 1) / √H
            products_ST = 2 * (states_SH @ bits_TH.T) - states_SH.sum(axis=1, keepdims=True)
            starts = np.cumsum(ends - begins) - (ends - begins)
            highest_SK = np.maximum.reduceat(products_ST, starts, axis=1)
            means_K = self._weights(ids[query]) @ highest_SK / np.sqrt(self._width)
            scores_QK[query] = means_K.min()
            scores_QK[query, known] = means_K
        return scores_QK

    def _weights(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """How much each token of a query counts, float32 [S] with the sum 1; all alike if none would count."""
        weights_S = np.zeros(len(ids), np.float32) if self._weights_V is None else self._weights_V[list(ids)]
        weights_S[: _shared(ids, self._empty)] = 0
        return weights_S / weights_S.sum() if weights_S.any() else np.full(len(ids), 1 / len(ids), np.float32)


def _shared(ids: Sequence[int], empty: Sequence[int]) -> int:
    """How many tokens of a text precede its own: those that it begins with as an empty text does."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids, empty)))
