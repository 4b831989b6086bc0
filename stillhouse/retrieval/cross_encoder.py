"""The cross-encoder: query and passage read together, one score (001 §3.2, the re-ranker).

Shape suffixes: B queries, K candidates of a query, P pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from stillhouse.context import Context
from stillhouse.errors import InputError
from stillhouse.retrieval.encoder import TokenizedTexts, for_each_batch
from stillhouse.retrieval.encoder_folder import refuse_bag_of_words
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.retrieval.tokenizer_files import save_tokenizer

PAIRS_AT_ONCE = 16_384


class CrossEncoder(nn.Module):
    """A Transformer with one score a pair; loads with `AutoModelForSequenceClassification`.

    sentence-transformers' `CrossEncoder` gives the same scores: the folder names the identity as its activation.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.max_length = max_length

    @classmethod
    def start(cls, folder: Path, max_length: int, layers: int = 0) -> CrossEncoder:
        """A new cross-encoder on a pre-trained encoder; the scoring layer is random, from torch's seed.

        `layers` > 0 keeps the encoder's first so many layers. Raises `InputError` where it has fewer, or is a bag
        of words.
        """
        refuse_bag_of_words(folder)
        config = AutoConfig.from_pretrained(folder, num_labels=1, local_files_only=True)
        if layers > config.num_hidden_layers:
            raise InputError(f"{folder} has {config.num_hidden_layers} layers: `layers: {layers}` asks for more")
        config.num_hidden_layers = layers or config.num_hidden_layers
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, config=config, local_files_only=True, dtype=torch.float32
        )
        model.config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
        model.config.stillhouse_max_length = max_length
        return cls(model, AutoTokenizer.from_pretrained(folder, local_files_only=True), max_length)

    @classmethod
    def load(cls, folder: Path) -> CrossEncoder:
        model = AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return cls(
            model, tokenizer, int(getattr(model.config, "stillhouse_max_length", 0)) or tokenizer.model_max_length
        )

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        self.tokenizer.model_max_length = self.max_length
        save_tokenizer(self.tokenizer, folder)

    def pairs(self, queries: Sequence[str], passages: Sequence[str]) -> PairTexts:
        """Tokenizes pairs; a pair that is too long loses the end of its passage, a very long query its own."""
        encoded = self.tokenizer(
            self._cut(queries), list(passages), truncation="only_second", max_length=self.max_length
        )
        # A tokenizer says whether its model reads token types; other tools go by that, so this does too.
        types = encoded.get("token_type_ids") or [[0] * len(ids) for ids in encoded["input_ids"]]
        ids = TokenizedTexts(encoded["input_ids"], self.tokenizer.pad_token_id)
        return PairTexts(ids, TokenizedTexts(types, 0))

    def _cut(self, queries: Sequence[str]) -> list[str]:
        """The queries, each without what lies beyond half of a pair's tokens: something of the passage must be read."""
        encoded = self.tokenizer(
            list(queries),
            add_special_tokens=False,
            truncation=True,
            max_length=self.max_length // 2,
            return_offsets_mapping=True,
        )
        ends = [offsets[-1][1] if offsets else 0 for offsets in encoded["offset_mapping"]]
        return [query[:end] for query, end in zip(queries, ends)]

    def forward(self, ids_PL: Tensor, mask_PL: Tensor, types_PL: Tensor) -> Tensor:
        """Raw scores [P], float32."""
        extra = {"token_type_ids": types_PL} if self.model.config.type_vocab_size > 1 else {}
        return self.model(input_ids=ids_PL, attention_mask=mask_PL, **extra).logits.float().squeeze(-1)


class PairTexts:
    """Tokenized pairs with their token types (0 the query, 1 the passage)."""

    def __init__(self, ids: TokenizedTexts, types: TokenizedTexts) -> None:
        self.ids = ids
        self._types = types

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, rows: Sequence[int] | np.ndarray, device: object) -> tuple[Tensor, Tensor, Tensor]:
        ids_PL, mask_PL = self.ids.batch(rows, device)  # type: ignore[arg-type]
        types_PL, _ = self._types.batch(rows, device)  # type: ignore[arg-type]
        return ids_PL, mask_PL, types_PL


def score_pairs(
    model: CrossEncoder,
    queries: np.ndarray,
    passages: np.ndarray,
    query_P: np.ndarray,
    row_P: np.ndarray,
    context: Context,
    what: str,
    config: InferenceConfig,
) -> np.ndarray:
    """Scores float32 [P] of the pairs (`queries[query_P]`, `passages[row_P]`); pairs are tokenized 16,384 at a time."""
    scores_P = np.empty(len(query_P), dtype=np.float32)
    for start in range(0, len(query_P), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        texts = model.pairs(list(queries[query_P[part]]), list(passages[row_P[part]]))

        def compute(rows: np.ndarray, device: torch.device, texts: PairTexts = texts) -> Tensor:
            return model(*texts.batch(rows, device))

        for_each_batch(model, texts.ids.lengths(), compute, scores_P[part], context, what, config)
    return scores_P
