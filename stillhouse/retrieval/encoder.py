"""The bi-encoder: a Transformer that queries and passages share (001 §3.2) or one each, and encoding at length.

Shape suffixes: B texts, L tokens, D width, N all texts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from stillhouse.context import Context
from stillhouse.errors import InputError
from stillhouse.retrieval.encoder_folder import is_bag_of_words, read_towers, write_towers
from stillhouse.retrieval.pooling import EncoderSettings, normalized, read_settings
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.retrieval.towers import Role, Tower
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


@dataclass(frozen=True)
class EncoderTexts(TokenizedTexts):
    """Tokenized texts of one role, which says whose tower reads them."""

    role: Role


class BiEncoder(nn.Module):
    """Towers that make queries and passages vectors; one for both roles where they are shared.

    `towers` holds that of the passages, and that of the queries where they have one of their own.
    `forward(ids_BL, mask_BL, role) -> vectors_BD`, of length 1 where `settings.normalize`.
    Relation to `SentenceTransformer`: the same vectors; to `AutoModel`: a Transformer's hidden states are the same.
    """

    def __init__(
        self, towers: Mapping[Role, Tower], tokenizer: PreTrainedTokenizerBase, settings: EncoderSettings
    ) -> None:
        super().__init__()
        self.towers = nn.ModuleDict(dict(towers.items()))
        self.tokenizer = tokenizer
        self.settings = settings

    @classmethod
    def load(cls, folder: Path, **changes: Any) -> BiEncoder:
        """Loads an `encoder/` or `retriever/` folder; `changes` override its settings, as in `query_length=64`.

        `towers="separate"` gives the queries of shared towers a copy of the one that there is; `towers="shared"` leaves
        the queries' own out. Raises `InputError` for a folder without an encoder.
        """
        if not (folder / "config.json").is_file() and not is_bag_of_words(folder):
            raise InputError(f"{folder} holds no encoder; `stillhouse fetch-model` or `stillhouse pretrain` makes one")
        own = read_settings(folder)
        settings = replace(own, **changes)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        towers = read_towers(folder, replace(settings, towers=own.towers), tokenizer)
        if settings.towers == "shared":
            towers = {"passage": towers["passage"]}
        elif own.towers == "shared":
            towers["query"] = copy.deepcopy(towers["passage"])
        return cls(towers, tokenizer, settings)

    def tower(self, role: Role) -> Tower:
        """What reads the texts of a role."""
        tower = self.towers[role if role in self.towers else "passage"]
        assert isinstance(tower, Tower)
        return tower

    @property
    def width(self) -> int:
        """Width of the vectors."""
        return self.tower("passage").width

    def forward(self, ids_BL: Tensor, mask_BL: Tensor, role: Role) -> Tensor:
        vectors_BD = self.tower(role)(ids_BL, mask_BL).float()
        return normalized(vectors_BD) if self.settings.normalize else vectors_BD

    def save(self, folder: Path) -> None:
        """Writes a folder for `BiEncoder.load`, `AutoModel` and `SentenceTransformer`."""
        towers: dict[Role, Tower] = {"passage": self.tower("passage")}
        if self.settings.towers == "separate":
            towers["query"] = self.tower("query")
        write_towers(folder, towers, self.tokenizer, self.settings)

    def texts(self, texts: Sequence[str], role: Role) -> EncoderTexts:
        """Tokenizes texts of a role, each cut to the length that the settings give it."""
        length = self.settings.query_length if role == "query" else self.settings.passage_length
        cut = tokenize(self.tokenizer, texts, length)
        return EncoderTexts(cut.ids, cut.padding_id, role)

    def queries(self, texts: Sequence[str]) -> EncoderTexts:
        return self.texts(texts, "query")

    def passages(self, texts: Sequence[str]) -> EncoderTexts:
        return self.texts(texts, "passage")


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
    texts: EncoderTexts,
    context: Context,
    what: str,
    config: InferenceConfig,
) -> np.ndarray:
    """The vectors of all texts, float32 [N, D], in the order of the texts."""
    vectors_ND = np.empty((len(texts), encoder.width), dtype=np.float32)

    def compute(rows: np.ndarray, device: torch.device) -> Tensor:
        return encoder(*texts.batch(rows, device), texts.role)

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
