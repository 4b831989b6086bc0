"""The bi-encoder: one Transformer for queries and passages (SimLM §3.2) or one for each, and encoding of many texts.

Shape suffixes: B texts, L tokens, D width, N all texts.
"""

import copy
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.models.acceleration.batches import side_by_side, threads_of
from stillhouse.models.acceleration.device import autocast, computed_in, on_device
from stillhouse.models.acceleration.memory import freed_memory_kept
from stillhouse.models.acceleration.replaced import bf16_residuals, packed_linears
from stillhouse.models.adapter import Adapter, write_adapters
from stillhouse.models.encoder_folder import read_towers, refuse_cross_encoder, write_towers
from stillhouse.models.encoder_settings import CONFIG, OF_MODULES, SETTINGS, EncoderSettings, read_settings
from stillhouse.models.model_place import is_model, refuse_unsupported
from stillhouse.models.pooling import normalized
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.tokenizer_files import cut_passages, load_tokenizer, token_ids
from stillhouse.models.towers import (
    BagOfWordsTower,
    ModuleTower,
    Role,
    Tower,
    TransformerTower,
    read_modules,
    write_modules_folder,
)
from stillhouse.models.transformer import longest_text, refuse_longer, whole_model

PADDED_TO = 8
"""Texts are padded to a multiple of this: small enough to cost little, large enough that many texts share a length."""
TOKENIZING = threading.Lock()
"""Held while a tokenizer runs: each call sets where to truncate, which two threads must not do at once."""
COPIED_AT_ONCE = 4096
"""Results that gather on the device before they are copied, which waits for all of its work."""


@dataclass(frozen=True)
class TokenizedTexts:
    """Texts as token ids without padding, ready to be batched: `ids[i]` is a list of ints with special tokens."""

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
        return on_device(ids_BL, device), on_device(mask_BL.astype(np.int64), device)


@dataclass(frozen=True)
class EncoderTexts(TokenizedTexts):
    """Tokenized texts of one role, which selects the tower; they were cut to `max_length` tokens."""

    role: Role
    max_length: int

    def padded_lengths(self) -> np.ndarray:
        """The padded length [N] of each text: the next multiple of 8, independent of the other texts."""
        return np.minimum(-(-self.lengths() // PADDED_TO) * PADDED_TO, self.max_length)


class BiEncoder(nn.Module):
    """The towers that turn queries and passages into vectors, or one shared tower for both.

    `towers` holds "passage" and, if queries have a tower of their own, "query".
    `forward(ids_BL, mask_BL, role) -> vectors_BD`; the vectors have length 1 if `settings.normalize` is true.
    `SentenceTransformer` gives the same vectors, `AutoModel` the same hidden states.
    """

    def __init__(
        self, towers: Mapping[Role, Tower], tokenizer: PreTrainedTokenizerBase, settings: EncoderSettings
    ) -> None:
        super().__init__()
        self.towers = nn.ModuleDict(dict(towers.items()))
        self.tokenizer = tokenizer
        self.settings = settings
        self.adapters: Sequence[Adapter] = ()
        prompts: dict[Role, str] = {"query": settings.query_prompt, "passage": settings.passage_prompt}
        self._prompt_tokens = {
            role: tower.prompt_tokens(prompt) if isinstance(tower := self.tower(role), ModuleTower) and prompt else 0
            for role, prompt in prompts.items()
        }

    @classmethod
    @doing("loading the model")
    def load(cls, folder: str | PathLike[str], **changes: Any) -> Self:
        """Load an `encoder/` or `retriever/` folder; `changes` override its settings, as in `query_length=64`.

        `towers="separate"` gives queries a copy of a shared tower; `towers="shared"` drops a separate query tower.
        Default lengths are lowered to what the model reads. Raises `InputError` for a folder without an encoder, for a
        cross-encoder, and for files that are missing, damaged, or from different models.
        """
        with whole_model(Path(folder)) as place:
            return cls._load(place, changes)

    @classmethod
    def _load(cls, folder: Path, changes: Mapping[str, Any]) -> Self:
        prompts = {name: changes.get(name) for name in ("query_prompt", "passage_prompt")}
        refuse_unsupported(folder, **prompts)
        if not is_model(folder):
            raise InputError(
                f"{folder / CONFIG} is missing: {folder} has no encoder; `stillhouse fetch-model` or `stillhouse "
                "pretrain` makes one"
            )
        refuse_cross_encoder(folder)
        own = read_settings(folder, **prompts)
        towers: dict[Role, Tower]
        if own.pooling == OF_MODULES:
            found, normalize = read_modules(folder)
            own = replace(own, normalize=normalize, towers="separate" if "query" in found else "shared")
            towers, tokenizer = dict(found), found["passage"].tokenizer
            settings = replace(own, **changes)
        else:
            settings, tokenizer = replace(own, **changes), load_tokenizer(folder)
            towers = read_towers(folder, replace(settings, towers=own.towers), tokenizer)
        settings = _within_reach(folder, towers, settings, changes)
        if settings.towers == "shared":
            towers = {"passage": towers["passage"]}
        elif own.towers == "shared" or "towers" in changes:  # the routes of a Router may share modules
            towers["query"] = copy.deepcopy(towers.get("query", towers["passage"]))
        return cls(towers, tokenizer, settings)

    def tower(self, role: Role) -> Tower:
        """The tower that reads the texts of a role."""
        tower = self.towers[role if role in self.towers else "passage"]
        assert isinstance(tower, Tower)
        return tower

    @property
    def width(self) -> int:
        """Width of the vectors."""
        width = self.tower("passage").width
        return min(width, self.settings.truncate_dim or width)

    def draw_bags(self, seed: int) -> None:
        """Redraw the parameters of bags of words, the same for two towers. Torch's random state does not change."""
        for role, tower in self.towers.items():
            assert isinstance(tower, BagOfWordsTower)
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)  # `torch.manual_seed` would also seed the GPUs
                self.towers[role] = tower.drawn_anew()

    def forward(self, ids_BL: Tensor, mask_BL: Tensor, role: Role) -> Tensor:
        tower = self.tower(role)
        more = (self._prompt_tokens[role],) if isinstance(tower, ModuleTower) else ()
        vectors_BD = tower(ids_BL, mask_BL, *more).float()[:, : self.settings.truncate_dim]
        return normalized(vectors_BD) if self.settings.normalize else vectors_BD

    def save(self, folder: Path) -> None:
        """Write a folder for `BiEncoder.load` and `SentenceTransformer`, and for `AutoModel` if that can read it."""
        towers: dict[Role, Tower] = {"passage": self.tower("passage")}
        if self.settings.towers == "separate":
            towers["query"] = self.tower("query")
        of_modules = {role: tower for role, tower in towers.items() if isinstance(tower, ModuleTower)}
        if of_modules:
            write_modules_folder(folder, of_modules, self.settings)
        else:
            write_towers(folder, towers, self.tokenizer, self.settings)
        write_adapters(folder, self.adapters)

    @doing("tokenizing")
    def texts(self, texts: Sequence[str], role: Role) -> EncoderTexts:
        """Tokenize texts of a role after its prompt, each cut to the role's length in the settings."""
        settings, tokenizer, special = self.settings, self.tokenizer, True
        tower = self.tower(role)
        if isinstance(tower, ModuleTower):
            tokenizer, special = tower.tokenizer, tower.adds_special_tokens
        with TOKENIZING:
            if role == "query":
                prompt, length = settings.query_prompt, settings.query_length
                given = [prompt + text for text in texts] if prompt else texts
                ids = token_ids(tokenizer, list(given), length, special=special)
            else:
                length = settings.passage_length
                ids = cut_passages(tokenizer, texts, length, settings.passage_prompt, special=special)
        return EncoderTexts(ids, tokenizer.pad_token_id or 0, role, length)

    def reads_alike(self) -> bool:
        """Whether an id stands for the same token in queries and in passages."""
        own = getattr(self.tower("query"), "tokenizer", self.tokenizer)
        return own is self.tokenizer or own.get_vocab() == self.tokenizer.get_vocab()

    def queries(self, texts: Sequence[str]) -> EncoderTexts:
        return self.texts(texts, "query")

    def passages(self, texts: Sequence[str]) -> EncoderTexts:
        return self.texts(texts, "passage")


def _within_reach(
    folder: Path, towers: Mapping[Role, Tower], settings: EncoderSettings, changes: Mapping[str, Any]
) -> EncoderSettings:
    """The settings with lengths that the towers can read.

    Raises `InputError` if the folder or `changes` ask for a longer one; a default is lowered.
    """
    roles: tuple[Role, ...] = ("query", "passage")
    for role in roles:
        tower, name = towers.get(role, towers["passage"]), f"{role}_length"
        if isinstance(tower, TransformerTower | ModuleTower) and tower.encoder is not None:
            if name in changes or (folder / SETTINGS).is_file():
                refuse_longer(tower.encoder, str(folder), **{name: getattr(settings, name)})
            longest = longest_text(tower.encoder) or getattr(settings, name)
            settings = replace(settings, **{name: min(longest, getattr(settings, name))})
    return settings


def length_batches(lengths_N: np.ndarray, tokens: int, alike: bool = False) -> Iterator[np.ndarray]:
    """Row numbers in batches of at most `tokens` padded tokens, longest texts first, to keep padding low.

    With `alike`, only texts of the same length share a batch.
    """
    order = np.argsort(-lengths_N, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(lengths_N[order])) + 1, len(order)) if alike else np.array([len(order)])
    start = 0
    for end in ends:
        while start < end:
            size = max(1, tokens // max(1, int(lengths_N[order[start]])))
            yield order[start : min(start + size, end)]
            start = min(start + size, int(end))


def encode(encoder: BiEncoder, texts: EncoderTexts, context: Context, what: str, config: InferenceConfig) -> np.ndarray:
    """Encode all texts: float32 [N, D], in their order.

    On one machine a text's vector does not depend on the other texts, bit for bit. Its padded length depends on itself
    alone. On a GPU, where results depend on the batch size, all batches of a length have the same size.
    """
    vectors_ND = np.empty((len(texts), encoder.width), dtype=np.float32)
    lengths_N = texts.padded_lengths()
    with inference(encoder, context, config) as device, context.bar(what, len(texts), "text") as bar:
        filled = filled_up(device)

        def compute(rows: np.ndarray) -> Tensor:
            length = max(1, int(lengths_N[rows[0]]))
            size = max(1, config.batch_tokens // length) if filled else len(rows)
            return encoder(*texts.batch(np.resize(rows, size), device, length), texts.role)[: len(rows)]

        waiting: list[tuple[np.ndarray, Tensor]] = []
        gathered = 0
        # Batches that run at the same time share the tokens.
        batches = length_batches(lengths_N, config.batch_tokens // threads_of(device), alike=True)
        for rows, part in side_by_side(batches, compute, config.precision, device):
            waiting.append((rows, part))
            gathered += len(rows)
            if gathered >= COPIED_AT_ONCE:
                _copy(waiting, vectors_ND)
                gathered = 0
            bar.update(len(rows))
        _copy(waiting, vectors_ND)
    return vectors_ND


def filled_up(device: torch.device) -> bool:
    """Whether small batches are filled up. GPUs choose a matrix product by its size."""
    return device.type == "cuda"


def _copy(waiting: list[tuple[np.ndarray, Tensor]], out: np.ndarray) -> None:
    """Copy results to their places in `out` and empty the list."""
    if waiting:
        out[np.concatenate([rows for rows, _ in waiting])] = torch.cat([part for _, part in waiting]).float().cpu()
    waiting.clear()


@contextmanager
def inference(model: nn.Module, context: Context, config: InferenceConfig) -> Iterator[torch.device]:
    """Move a model to its device and compute in the configured precision without gradients until the block ends."""
    device = context.torch_device()
    model.to(device).eval()
    dtype = computed_in(config.precision, device)
    with (
        torch.inference_mode(),
        autocast(config.precision, device),
        packed_linears(model, dtype, device),
        bf16_residuals(model, config.precision, device),
        freed_memory_kept(),
    ):
        yield device
