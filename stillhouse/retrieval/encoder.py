"""The bi-encoder: one shared Transformer for queries and passages (001 §3.2), its folder, and encoding at length.

Shape suffixes: B texts, L tokens, D width, N all texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from stillhouse.context import Context
from stillhouse.errors import InputError
from stillhouse.retrieval.pooling import EncoderSettings, normalized, pool, read_settings, write_modules
from stillhouse.retrieval.projection import PROJECTION, read_projection
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.retrieval.tokenizer_files import save_tokenizer
from stillhouse.training.precision import autocast


@dataclass(frozen=True)
class TokenizedTexts:
    """Texts as token ids without padding, ready to be batched: `ids[i]` is an int list with special tokens."""

    ids: list[list[int]]
    padding_id: int

    def __len__(self) -> int:
        return len(self.ids)

    def lengths(self) -> np.ndarray:
        return np.array([len(ids) for ids in self.ids], dtype=np.int64)

    def batch(self, rows: Sequence[int] | np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
        """`ids_BL` (int64, padded to the longest of the rows) and `mask_BL` (1 where a token is)."""
        chosen = [self.ids[row] for row in rows]
        longest = max(len(ids) for ids in chosen)
        ids_BL = torch.tensor([ids + [self.padding_id] * (longest - len(ids)) for ids in chosen], device=device)
        lengths_B1 = torch.tensor([[len(ids)] for ids in chosen], device=device)
        return ids_BL, (torch.arange(longest, device=device) < lengths_B1).long()


def tokenize(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int) -> TokenizedTexts:
    """Cuts texts into at most `max_length` tokens each, special tokens included."""
    if not len(texts):
        return TokenizedTexts([], tokenizer.pad_token_id)
    encoded = tokenizer(list(texts), truncation=True, max_length=max_length, return_token_type_ids=False)
    return TokenizedTexts(encoded["input_ids"], tokenizer.pad_token_id)


class BiEncoder(nn.Module):
    """An encoder with pooling and, where it was trained with one, a linear `projection` of the pooled vector.

    `forward(ids_BL, mask_BL) -> vectors_BD`, of length 1 where `settings.normalize`.

    Relation to `AutoModel`: the same hidden states; to `SentenceTransformer`: the same vectors.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        settings: EncoderSettings,
        projection: nn.Linear | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.projection = projection
        self.tokenizer = tokenizer
        self.settings = settings

    @classmethod
    def load(cls, folder: Path, **changes: Any) -> BiEncoder:
        """Loads an `encoder/` or `retriever/` folder; `changes` override its settings, as in `query_length=64`.

        Raises `InputError` for separate towers and for a bag of words.
        """
        settings = read_settings(folder)
        if settings.towers != "shared" or not (folder / "config.json").is_file():
            raise InputError(
                f"{folder} holds no single Transformer for queries and passages; `stillhouse pretrain` with towers "
                "shared and pair_encoder transformer makes one"
            )
        settings = EncoderSettings(**{**settings.__dict__, **changes})
        model = AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
        projection = read_projection(folder / PROJECTION) if settings.projection else None
        return cls(model, AutoTokenizer.from_pretrained(folder, local_files_only=True), settings, projection)

    @property
    def width(self) -> int:
        """Width of the vectors."""
        return self.settings.projection or int(self.model.config.hidden_size)

    def forward(self, ids_BL: Tensor, mask_BL: Tensor) -> Tensor:
        hidden_BLD = self.model(input_ids=ids_BL, attention_mask=mask_BL).last_hidden_state
        vectors_BD = pool(hidden_BLD.float(), mask_BL, self.settings.pooling)
        if self.projection is not None:
            vectors_BD = self.projection(vectors_BD).float()
        return normalized(vectors_BD) if self.settings.normalize else vectors_BD

    def save(self, folder: Path) -> None:
        """Writes a folder for `BiEncoder.load`, `AutoModel` and `SentenceTransformer`."""
        self.model.save_pretrained(folder)
        save_tokenizer(self.tokenizer, folder)
        write_modules(folder, int(self.model.config.hidden_size), self.settings, self.projection)

    def queries(self, texts: Sequence[str]) -> TokenizedTexts:
        return tokenize(self.tokenizer, texts, self.settings.query_length)

    def passages(self, texts: Sequence[str]) -> TokenizedTexts:
        return tokenize(self.tokenizer, texts, self.settings.passage_length)


def length_batches(lengths_N: np.ndarray, tokens: int) -> Iterator[np.ndarray]:
    """Row numbers in batches of at most `tokens` padded tokens, longest texts first, so that little is padding."""
    order = np.argsort(-lengths_N, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, tokens // max(1, int(lengths_N[order[start]])))
        yield order[start : start + size]
        start += size


def encode(
    encoder: BiEncoder,
    texts: TokenizedTexts,
    context: Context,
    what: str,
    config: InferenceConfig,
) -> np.ndarray:
    """The vectors of all texts, float32 [N, D], in the order of the texts."""
    vectors_ND = np.empty((len(texts), encoder.width), dtype=np.float32)

    def compute(rows: np.ndarray, device: torch.device) -> Tensor:
        return encoder(*texts.batch(rows, device))

    for_each_batch(encoder, texts.lengths(), compute, vectors_ND, context, what, config)
    return vectors_ND


def for_each_batch(
    model: nn.Module,
    lengths_N: np.ndarray,
    compute: Callable[[np.ndarray, torch.device], Tensor],
    out: np.ndarray,
    context: Context,
    what: str,
    config: InferenceConfig,
) -> None:
    """Fills `out[rows] = compute(rows)` over length-sorted batches, in inference mode, with a progress bar."""
    device = context.torch_device()
    model.to(device).eval()
    with torch.inference_mode(), autocast(config.precision, device), context.bar(what, len(lengths_N), "text") as bar:
        for rows in length_batches(lengths_N, config.batch_tokens):
            out[rows] = compute(rows, device).float().cpu().numpy()
            bar.update(len(rows))
