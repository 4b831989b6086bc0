"""The last hidden state of every token of a text, for late interaction (`stillhouse.search.late_interaction`).

Shape suffixes: B texts, L tokens, H hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from stillhouse.core.context import Context
from stillhouse.models.acceleration.batches import side_by_side, threads_of
from stillhouse.models.encoder import BiEncoder, EncoderTexts, inference, length_batches
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.towers import BagOfWordsTower


def state_width(encoder: BiEncoder) -> int:
    """The width of the hidden states, the same for queries and passages; else 0, and for bags of words."""
    towers = (encoder.tower("query"), encoder.tower("passage"))
    models = [None if isinstance(tower, BagOfWordsTower) else tower.encoder for tower in towers]
    widths = {0 if model is None else int(model.config.get_text_config().hidden_size) for model in models}
    return widths.pop() if len(widths) == 1 else 0


def token_states(
    encoder: BiEncoder, texts: EncoderTexts, context: Context, what: str, config: InferenceConfig
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield each text's number and the states of its tokens, float32 [L, H] of length 1, in any order."""
    tower, lengths_N = encoder.tower(texts.role), texts.lengths()
    assert not isinstance(tower, BagOfWordsTower), "words of a bag have no states"
    with inference(encoder, context, config) as device, context.bar(what, len(texts), "text") as bar:

        def compute(rows: NDArray[np.integer]) -> Tensor:
            return normalize(tower.token_states(*texts.batch(rows, device)).float(), dim=-1)

        batches = length_batches(texts.padded_lengths(), config.batch_tokens // threads_of(device), alike=True)
        for rows, states_BLH in side_by_side(batches, compute, config.precision, device):
            states = states_BLH.cpu().numpy()
            for number, row in enumerate(rows.tolist()):
                yield row, states[number, : lengths_N[row]]
            bar.update(len(rows))


class TokenReader:
    """The states of queries' tokens, computed by a loaded retriever."""

    def __init__(self, encoder: BiEncoder, context: Context, config: InferenceConfig) -> None:
        self._encoder, self._context, self._config = encoder, context, config
        self.state_width = state_width(encoder)

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each query, with the prompt and special tokens."""
        return self._encoder.queries(texts).ids

    def states(self, ids: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """The states of each query's tokens, float32 [S, H] of length 1."""
        queries = replace(self._encoder.queries([]), ids=[list(each) for each in ids])
        read = token_states(self._encoder, queries, self._context, "queries", self._config)
        return [states for _, states in sorted(read, key=lambda each: each[0])]
