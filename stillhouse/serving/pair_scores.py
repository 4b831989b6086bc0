"""The cross-encoder of a release, which scores one query with a few texts.

It is apart because it needs transformers, which takes seconds to import, and most releases have no cross-encoder.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.acceleration.replaced import keep_packed
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.models.encoder import inference, length_batches
from stillhouse.models.query_encoder import EXACT


class PairScores:
    """Scores pairs. Raises `InputError` for a folder without a cross-encoder."""

    def __init__(self, folder: Path, context: Context) -> None:
        self._model, self._context = CrossEncoder.load(folder, raw=True), replace(context, quiet=True)
        keep_packed(self._model, context.torch_device())

    def __call__(self, query: str, texts: Sequence[str]) -> tuple[list[float], int]:
        """One raw score per text, in order, higher is better; and the number of tokens read.

        Raises `InputError` for a score that is not a number.
        """
        pairs = self._model.pairs([query] * len(texts), texts)
        lengths_P = pairs.ids.lengths()
        scores_P = np.empty(len(texts), dtype=np.float32)
        with inference(self._model, self._context, EXACT) as device:
            for rows in length_batches(lengths_P, EXACT.batch_tokens):
                scores_P[rows] = self._model(*pairs.batch(rows, device)).float().cpu().numpy()
        if not np.isfinite(scores_P).all():
            raise InputError("a score of the cross-encoder is not a number: the model is damaged; train it again")
        found: list[float] = scores_P.tolist()
        return found, int(lengths_P.sum())
