"""A small query tower learns the vectors that the large one gives to questions and to sentences of the corpus.

No label is needed, and each text teaches all dimensions of a vector, so a small tower comes near the large one in few
steps (Kim et al. 2023, "EmbedDistill: A Geometric Knowledge Distillation for Information Retrieval").

Shape suffixes: B texts of a step, N all texts, D width.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.core.context import Context
from stillhouse.corpus.sentences import query_sentences
from stillhouse.corpus.store import Corpus, passage_text_blocks
from stillhouse.models.acceleration.device import on_device
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.settings import InferenceConfig
from stillhouse.training.batches import epoch_batches

FEWEST_WORDS = 4
"""A shorter sentence is a heading or a fragment."""
TEXTS = 20_000


def texts_to_imitate(corpus: Corpus, seed: int) -> list[str]:
    """All train queries and sentences of randomly drawn passages, together at most `TEXTS`."""
    queries = list(corpus.queries_of("train")["text"])
    rng = np.random.default_rng([seed, 0])
    queries = [queries[place] for place in rng.permutation(len(queries))[:TEXTS]]
    wanted = TEXTS - len(queries)
    rows = np.sort(rng.permutation(corpus.passage_count)[:wanted])
    texts = [text for block in passage_text_blocks(corpus, rows) for text in block]
    found = query_sentences(texts, FEWEST_WORDS, "en")
    places = rng.permutation(len(found.rows_S))[:wanted]
    spans = zip(found.rows_S[places].tolist(), found.spans_S2[places].tolist())
    return queries + [texts[row][begin:end] for row, (begin, end) in spans]


class Imitation:
    """The loss of a query tower against given vectors of texts, with a new batch of texts in each step."""

    def __init__(
        self,
        encoder: BiEncoder,
        texts: list[str],
        vectors_ND: NDArray[np.float32],
        batch_size: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self._encoder, self._device = encoder, device
        self._texts, self._vectors_ND = encoder.queries(texts), vectors_ND
        self._scale = float(np.square(vectors_ND).sum(axis=1).mean())
        self._batch = epoch_batches(len(texts), batch_size, seed)

    def __len__(self) -> int:
        return len(self._vectors_ND)

    def __call__(self, step: int) -> Tensor:
        """The mean squared distance to the vectors, as a share of their mean squared length."""
        rows_B = self._batch(step)
        made_BD = self._encoder(*self._texts.batch(rows_B, self._device), "query").float()
        return (made_BD - on_device(self._vectors_ND[rows_B], self._device)).square().sum(dim=1).mean() / self._scale


def vectors_to_imitate(large: BiEncoder, texts: list[str], context: Context) -> NDArray[np.float32]:
    """The vectors of texts as queries of the large model, float32 [N, D]."""
    return encode(large, large.queries(texts), context, "encoding what to imitate", InferenceConfig())
