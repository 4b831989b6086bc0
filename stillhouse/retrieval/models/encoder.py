"""The bi-encoder: a Transformer that queries and passages share (SimLM §3.2) or one each, and encoding at length.

Shape suffixes: B texts, L tokens, D width, N all texts.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from stillhouse.acceleration.packed_linears import packed_linears
from stillhouse.acceleration.precision import autocast, computed_in
from stillhouse.acceleration.side_by_side import side_by_side, threads_of
from stillhouse.context import Context
from stillhouse.errors import InputError
from stillhouse.monitoring.activity import doing
from stillhouse.retrieval.models.encoder_folder import read_towers, refuse_cross_encoder, write_towers
from stillhouse.retrieval.models.model_place import CONFIG, is_bag_of_words
from stillhouse.retrieval.models.passage_tokens import cut_passages
from stillhouse.retrieval.models.pooling import SETTINGS, EncoderSettings, normalized, read_settings
from stillhouse.retrieval.models.positions import longest_text, refuse_longer
from stillhouse.retrieval.models.tokenizer_files import load_tokenizer
from stillhouse.retrieval.models.towers import BagOfWordsTower, Role, Tower, TransformerTower
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.training.memory import freed_memory_kept

PADDED_TO = 8
"""Texts are padded to a multiple of this: short enough to cost little, long enough that many share a length."""
TOKENIZING = threading.Lock()
"""Held while a tokenizer cuts texts: each call sets where to cut, which two threads may not do at once."""
COPIED_AT_ONCE = 4096
"""Results that wait on the device before they are copied from it."""


@dataclass(frozen=True)
class TokenizedTexts:
    """Texts as token ids without padding, ready to be batched: `ids[i]` is an int list with special tokens."""

    ids: list[list[int]]
    padding_id: int

    def __len__(self) -> int:
        return len(self.ids)

    def lengths(self) -> np.ndarray:
        return np.array([len(ids) for ids in self.ids], dtype=np.int64)

    def batch(
        self, rows: Sequence[int] | np.ndarray, device: torch.device, length: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """`ids_BL` (int64, padded to `length` or the longest of the rows) and `mask_BL` (1 where a token is)."""
        chosen = [self.ids[row] for row in rows]
        lengths_B = np.array([len(ids) for ids in chosen])
        mask_BL = np.arange(length or lengths_B.max()) < lengths_B[:, None]
        ids_BL = np.full(mask_BL.shape, self.padding_id, dtype=np.int64)
        ids_BL[mask_BL] = np.fromiter(chain.from_iterable(chosen), dtype=np.int64, count=int(lengths_B.sum()))
        return torch.from_numpy(ids_BL).to(device), torch.from_numpy(mask_BL.astype(np.int64)).to(device)


def tokenize(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int) -> TokenizedTexts:
    """Cuts texts into at most `max_length` tokens each, special tokens included."""
    if not len(texts):
        return TokenizedTexts([], tokenizer.pad_token_id)
    with TOKENIZING:
        encoded = tokenizer(list(texts), truncation=True, max_length=max_length, return_token_type_ids=False)
    return TokenizedTexts(encoded["input_ids"], tokenizer.pad_token_id)


@dataclass(frozen=True)
class EncoderTexts(TokenizedTexts):
    """Tokenized texts of one role, which says whose tower reads them; `max_length` is what they were cut to."""

    role: Role
    max_length: int

    def padded_lengths(self) -> np.ndarray:
        """The length [N] at which each text is computed: the next multiple of 8, whatever the other texts are."""
        return np.minimum(-(-self.lengths() // PADDED_TO) * PADDED_TO, self.max_length)


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
    @doing("loading the model")
    def load(cls, folder: str | PathLike[str], **changes: Any) -> BiEncoder:
        """Loads an `encoder/` or `retriever/` folder; `changes` override its settings, as in `query_length=64`.

        `towers="separate"` gives the queries of shared towers a copy of the one that there is; `towers="shared"` leaves
        the queries' own out. Lengths that nobody set are at most what the model reads. Raises `InputError` for a folder
        without an encoder, for a cross-encoder, and for files that are missing, damaged, or not of one model.
        """
        folder = Path(folder)
        if not (folder / CONFIG).is_file() and not is_bag_of_words(folder):
            raise InputError(
                f"{folder / CONFIG} is missing: {folder} holds no encoder; `stillhouse fetch-model` or `stillhouse "
                "pretrain` makes one"
            )
        refuse_cross_encoder(folder)
        own = read_settings(folder)
        settings = replace(own, **changes)
        tokenizer = load_tokenizer(folder)
        towers = read_towers(folder, replace(settings, towers=own.towers), tokenizer)
        settings = _within_reach(folder, towers, settings, changes)
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

    def draw_bags(self, seed: int) -> None:
        """Draws the parameters of bags of words anew; two towers get the same ones. Torch's random state stays."""
        for role, tower in self.towers.items():
            assert isinstance(tower, BagOfWordsTower)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self.towers[role] = tower.drawn_anew()

    def forward(self, ids_BL: Tensor, mask_BL: Tensor, role: Role) -> Tensor:
        vectors_BD = self.tower(role)(ids_BL, mask_BL).float()
        return normalized(vectors_BD) if self.settings.normalize else vectors_BD

    def save(self, folder: Path) -> None:
        """Writes a folder for `BiEncoder.load`, `AutoModel` and `SentenceTransformer`."""
        towers: dict[Role, Tower] = {"passage": self.tower("passage")}
        if self.settings.towers == "separate":
            towers["query"] = self.tower("query")
        write_towers(folder, towers, self.tokenizer, self.settings)

    @doing("tokenizing")
    def texts(self, texts: Sequence[str], role: Role) -> EncoderTexts:
        """Tokenizes texts of a role behind its prompt, each cut to the length that the settings give it."""
        settings = self.settings
        if role == "query":
            prompt, length = settings.query_prompt, settings.query_length
            ids = tokenize(self.tokenizer, [prompt + text for text in texts] if prompt else texts, length).ids
        else:
            length = settings.passage_length
            with TOKENIZING:
                ids = cut_passages(self.tokenizer, texts, length, settings.passage_prompt)
        return EncoderTexts(ids, self.tokenizer.pad_token_id, role, length)

    def queries(self, texts: Sequence[str]) -> EncoderTexts:
        return self.texts(texts, "query")

    def passages(self, texts: Sequence[str]) -> EncoderTexts:
        return self.texts(texts, "passage")


def _within_reach(
    folder: Path, towers: Mapping[Role, Tower], settings: EncoderSettings, changes: Mapping[str, Any]
) -> EncoderSettings:
    """The settings with lengths that the towers read.

    Raises `InputError` for a length beyond that which the folder or `changes` ask for; a default is lowered.
    """
    roles: tuple[Role, ...] = ("query", "passage")
    for role in roles:
        tower, name = towers.get(role, towers["passage"]), f"{role}_length"
        if isinstance(tower, TransformerTower):
            if name in changes or (folder / SETTINGS).is_file():
                refuse_longer(tower.encoder, str(folder), **{name: getattr(settings, name)})
            longest = longest_text(tower.encoder) or getattr(settings, name)
            settings = replace(settings, **{name: min(longest, getattr(settings, name))})
    return settings


def length_batches(lengths_N: np.ndarray, tokens: int, alike: bool = False) -> Iterator[np.ndarray]:
    """Row numbers in batches of at most `tokens` padded tokens, longest texts first, so that little is padding.

    With `alike` only texts of the same length share a batch.
    """
    order = np.argsort(-lengths_N, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(lengths_N[order])) + 1, len(order)) if alike else np.array([len(order)])
    start = 0
    for end in ends:
        while start < end:
            size = max(1, tokens // max(1, int(lengths_N[order[start]])))
            yield order[start : min(start + size, end)]
            start = min(start + size, int(end))


def encode(
    encoder: BiEncoder,
    texts: EncoderTexts,
    context: Context,
    what: str,
    config: InferenceConfig,
) -> np.ndarray:
    """The vectors of all texts, float32 [N, D], in the order of the texts.

    On one machine a text's vector is the same to the last bit whatever the other texts are: it is padded to a length of
    its own, and on a GPU, which computes few texts otherwise than many, every batch of a length has as many.
    """
    vectors_ND = np.empty((len(texts), encoder.width), dtype=np.float32)
    lengths_N = texts.padded_lengths()
    filled = filled_up(context.torch_device())

    def compute(rows: np.ndarray, device: torch.device) -> Tensor:
        length = int(lengths_N[rows[0]])
        size = max(1, config.batch_tokens // length) if filled else len(rows)
        return encoder(*texts.batch(np.resize(rows, size), device, length), texts.role)[: len(rows)]

    for_each_batch(encoder, lengths_N, compute, vectors_ND, context, what, config, alike=True)
    return vectors_ND


def filled_up(device: torch.device) -> bool:
    """Whether a batch of few texts is filled up: GPUs choose how to multiply by the size."""
    return device.type == "cuda"


def for_each_batch(
    model: nn.Module,
    lengths_N: np.ndarray,
    compute: Callable[[np.ndarray, torch.device], Tensor],
    out: np.ndarray,
    context: Context,
    what: str,
    config: InferenceConfig,
    alike: bool = False,
) -> None:
    """Fills `out[rows] = compute(rows)` over length-sorted batches, in inference mode, with a progress bar.

    The batches that are computed at once have `config.batch_tokens` together. Results wait on the device until there
    are some thousands, so that it is seldom waited for. `alike` is that of `length_batches`.
    """
    with inference(model, context, config) as device, context.bar(what, len(lengths_N), "text") as bar:
        waiting: list[tuple[np.ndarray, Tensor]] = []
        texts = 0
        batches = length_batches(lengths_N, config.batch_tokens // threads_of(device), alike)
        for rows, part in side_by_side(batches, lambda rows: compute(rows, device), config.precision, device):
            waiting.append((rows, part))
            texts += len(rows)
            if texts >= COPIED_AT_ONCE:
                _copy(waiting, out)
                texts = 0
            bar.update(len(rows))
        _copy(waiting, out)


def _copy(waiting: list[tuple[np.ndarray, Tensor]], out: np.ndarray) -> None:
    """Writes results where they belong, and empties the list."""
    if waiting:
        out[np.concatenate([rows for rows, _ in waiting])] = torch.cat([part for _, part in waiting]).float().cpu()
    waiting.clear()


@contextmanager
def inference(model: nn.Module, context: Context, config: InferenceConfig) -> Iterator[torch.device]:
    """A model on its device, ready to compute in the setting's precision without gradients, until the block ends."""
    device = context.torch_device()
    model.to(device).eval()
    dtype = computed_in(config.precision, device)
    with (
        torch.inference_mode(),
        autocast(config.precision, device),
        packed_linears(model, dtype, device),
        freed_memory_kept(),
    ):
        yield device
