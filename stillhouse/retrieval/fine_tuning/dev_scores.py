"""The scores of dev queries' candidates by a model in training, computed jointly by its processes.

Batches depend on the texts alone, so the scores do not depend on the number of processes.

Shapes: N texts or pairs, W numbers per text, P pairs of a query and a candidate, R distinct passages, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.acceleration.on_device import on_device
from stillhouse.context import Context
from stillhouse.corpus.text_file import TextFile
from stillhouse.retrieval.fine_tuning.dev_ranking import DevCandidates
from stillhouse.retrieval.models.cross_encoder import CrossEncoder
from stillhouse.retrieval.models.encoder import BiEncoder, length_batches
from stillhouse.retrieval.models.towers import Role
from stillhouse.retrieval.settings import BATCH_TOKENS
from stillhouse.training.batches import chunks
from stillhouse.training.processes import add_up, own_parts

TEXTS_AT_ONCE = 16_384
"""Texts tokenized together."""
PAIRS_AT_ONCE = 1 << 16
"""Pairs scored together."""
WHAT = "ranking dev queries"


Texts = NDArray[np.object_]
Compute = Callable[[NDArray[np.int64]], Tensor]
"""Computes the results of some rows of a tokenized part, [rows] or [rows, W]."""


def retriever_scores(
    candidates: DevCandidates, queries_QD: NDArray[np.float32], passages_RD: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The inner products [P], in fp32, of `candidates.pairs()`, from the vectors of its queries and its `passages`."""
    query_P, row_P = candidates.pairs()
    place_P = np.searchsorted(candidates.passages, row_P)
    parts = [
        np.einsum("pd,pd->p", queries_QD[query_P[part]], passages_RD[place_P[part]])
        for part in chunks(len(row_P), PAIRS_AT_ONCE)
    ]
    return np.concatenate(parts)


def score_by_retriever(
    encoder: BiEncoder, candidates: DevCandidates, passages: TextFile | Texts, context: Context
) -> NDArray[np.float32]:
    """Score `candidates.pairs()` with an encoder in evaluation mode, under the training's autocast."""
    device = context.torch_device()
    rows_R = candidates.passages
    total = len(candidates) + len(rows_R)
    with context.bar(WHAT, total, "text") as bar:

        def encode(texts: Sequence[str], role: Role) -> NDArray[np.float32]:
            def tokenized(part: NDArray[np.int64]) -> tuple[NDArray[np.int64], Compute]:
                cut = encoder.texts([texts[number] for number in part], role)
                return cut.lengths(), lambda rows: encoder(*cut.batch(rows, device), role)

            return _shared(len(texts), encoder.width, tokenized, device, bar)

        return retriever_scores(
            candidates, encode(list(candidates.texts), "query"), encode(list(passages[rows_R]), "passage")
        )


def score_by_reranker(
    model: CrossEncoder, candidates: DevCandidates, passages: TextFile | Texts, context: Context
) -> NDArray[np.float32]:
    """Score `candidates.pairs()` with a cross-encoder in evaluation mode, under the training's autocast."""
    device = context.torch_device()
    query_P, row_P = candidates.pairs()
    with context.bar(WHAT, len(row_P), "pair") as bar:

        def tokenized(part: NDArray[np.int64]) -> tuple[NDArray[np.int64], Compute]:
            pairs = model.pairs(list(candidates.texts[query_P[part]]), list(passages[row_P[part]]))
            return pairs.ids.lengths(), lambda rows: model(*pairs.batch(rows, device))

        return _shared(len(row_P), 1, tokenized, device, bar)[:, 0]


def _shared(
    count: int,
    width: int,
    tokenized: Callable[[NDArray[np.int64]], tuple[NDArray[np.int64], Compute]],
    device: torch.device,
    bar: Any,
) -> NDArray[np.float32]:
    """Results float32 [N, W]. One process computes each batch; `tokenized(numbers)` gives lengths and a `Compute`."""
    out_NW = np.empty((count, width), dtype=np.float32)
    for part in chunks(count, TEXTS_AT_ONCE):
        lengths, compute = tokenized(part)
        batches = list(length_batches(lengths, BATCH_TOKENS))
        own = set(own_parts(len(batches)))
        made_NW = torch.zeros(len(part), width, device=device)
        for number, rows in enumerate(batches):
            if number in own:
                made_NW[on_device(rows, device)] = compute(rows).float().reshape(len(rows), width)
            bar.update(len(rows))
        add_up(made_NW)
        out_NW[part] = made_NW.cpu().numpy()
    return out_NW
