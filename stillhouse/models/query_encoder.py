"""Encodes texts with our own BERT code, from the first question right after startup to a service's batches.

Importing the models of transformers takes longer than everything else that a first answer needs. If a retriever was
written by a Stillhouse step and is a BERT, it is therefore read here: its weights with `safetensors`, its tokenizer
with the `tokenizers` library. `BiEncoder` reads all other retrievers.

The tokens of all texts form one row for the linear layers, with attention within each text. No text is padded, so a
batch of short and long texts costs only its tokens. The row is padded to a multiple of eight tokens, and the weights
are packed for the CPU once, in fp32 or bf16. In fp32 the vectors equal those of `BiEncoder` and of transformers
except for rounding, and a text has the same vector alone and among others. In bf16 the types are those of autocast:
linear layers and attention in bf16, sums and norms in fp32.

Shape suffixes: Q texts, T tokens of all texts, L tokens of a text, B texts of one length, H heads, K width of a head,
D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, layer_norm, linear, relu, scaled_dot_product_attention

from stillhouse.core.artifacts import MANIFEST
from stillhouse.core.context import Context
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.titles import divided
from stillhouse.models.acceleration.replaced import EVEN, can_pack, packed_forward
from stillhouse.models.encoder_settings import OF_MODULES, EncoderSettings, json_object, read_settings
from stillhouse.models.pooling import normalized, pool
from stillhouse.models.settings import InferenceConfig

if TYPE_CHECKING:
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.models.towers import Role

EXACT = InferenceConfig(precision="fp32")
Function = Callable[[Tensor], Tensor]
Cut = Callable[[Sequence[str]], list[list[int]]]
"""The token ids of each text, special tokens included."""
ACTIVATIONS: dict[str, Function] = {"gelu": gelu, "relu": relu}
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
QUERY_TOWER = "query"
"""The folder of a separate query tower."""
FEW_TOKENS = 16
"""Up to this many tokens are computed on one thread: several threads would spend more time waiting for each other."""
Groups = Sequence[tuple[int, int, int]]
"""The first token, the count and the length of the texts of each length."""


class TextEncoder(Protocol):
    """Turns the texts of a role into vectors. With `normalize` they have length 1.

    Texts are tokenized apart, so that a batch can be as large as its token limit allows.
    """

    width: int
    state_width: int
    normalize: bool

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text after the role's prompt, with special tokens, cut to what the model reads."""

    def vectors(self, ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Float32 [Q, D]."""

    def states(self, ids: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """The last hidden states of each text's tokens, float32 [L, H] of length 1."""


@doing("loading the model")
def open_query_encoder(folder: Path, context: Context) -> PlainBert | AnyEncoder:
    """Read a retriever to encode questions. Raises `InputError` as `BiEncoder.load` does."""
    if (folder / MANIFEST).is_file():
        settings = read_settings(folder)
        tower = folder / QUERY_TOWER if settings.towers == "separate" else folder
        plain = settings.pooling != OF_MODULES and not settings.projection and not settings.truncate_dim
        if plain and is_plain_bert(tower, settings.query_length):
            tokens = query_tokens(tower, settings.query_length, settings.query_prompt)
            return PlainBert(tower, settings, context.torch_device(), tokens)
    return AnyEncoder(folder, context)


def open_passage_encoder(
    folder: Path, queries: PlainBert | AnyEncoder, context: Context, dtype: torch.dtype = torch.float32
) -> TextEncoder:
    """Read the tower for passages of the retriever that `queries` was read from; a `PlainBert` computes in `dtype`."""
    if isinstance(queries, AnyEncoder):
        return AnyEncoder(queries.encoder, context, "passage")
    settings = read_settings(folder)
    if not is_plain_bert(folder, settings.passage_length):
        return AnyEncoder(folder, context, "passage")
    tokens = passage_tokens(folder, settings.passage_length, settings.passage_prompt)
    if settings.towers == "shared" and dtype == queries.dtype:
        return queries.reading(tokens)
    return PlainBert(folder, settings, context.torch_device(), tokens, dtype)


def is_plain_bert(folder: Path, length: int) -> bool:
    """Whether a folder has a BERT and tokenizer that `PlainBert` can compute, up to `length` tokens."""
    if not all((folder / name).is_file() for name in FILES):
        return False
    config, tokenizer = json_object(folder / "config.json"), json_object(folder / "tokenizer_config.json")
    return (
        config.get("model_type") == "bert"
        and config.get("hidden_act") in ACTIVATIONS
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not config.get("is_decoder")
        and not config.get("add_cross_attention")
        and config.get("max_position_embeddings", 0) >= length
        and tokenizer.get("truncation_side", "right") == "right"
    )


@dataclass(frozen=True)
class _Layer:
    into: Function
    out: Function
    up: Function
    down: Function
    norm1: Function
    norm2: Function


class PlainBert:
    """A BERT without a head, for several texts at once.

    `cut` tokenizes the texts of its role with `tokenizers` alone; the ids equal those of `BiEncoder`. `dtype` is
    float32 or bfloat16.
    """

    def __init__(
        self,
        folder: Path,
        settings: EncoderSettings,
        device: torch.device,
        cut: Cut,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        config = json_object(folder / "config.json")
        self.width, self.normalize, self.pooling = int(config["hidden_size"]), settings.normalize, settings.pooling
        self.tokenize, self.device, self.dtype = cut, device, dtype
        self.state_width = self.width
        self._heads, self._eps = int(config["num_attention_heads"]), float(config["layer_norm_eps"])
        self._activation = ACTIVATIONS[config["hidden_act"]]
        part = "embeddings."
        weights = _weights(folder, part)
        names = ("word_embeddings.weight", "token_type_embeddings.weight", "position_embeddings.weight")
        self._words, self._kinds, self._positions = (weights[part + name].to(device) for name in names)
        self._norm = self._norm_of(weights, f"{part}LayerNorm")
        # Mapped a second time: packing gives back the memory of these pages, while the embeddings stay mapped.
        of_layers = _weights(folder, "encoder.")
        numbers = range(int(config["num_hidden_layers"]))
        self._layers = [self._layer_of(of_layers, f"encoder.layer.{number}.") for number in numbers]

    def reading(self, cut: Cut) -> PlainBert:
        """The same model with the same weights, for the texts of another role."""
        other = copy(self)
        other.tokenize = cut
        return other

    def vectors(self, ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Float32 [Q, D]."""
        vectors_QD = np.empty((len(ids), self.width), dtype=np.float32)
        for rows, hidden_BLD in self._hidden(ids):
            everything_BL = torch.ones(hidden_BLD.shape[:2], device=self.device)
            vector_BD = pool(hidden_BLD, everything_BL, self.pooling)
            vectors_QD[rows] = (normalized(vector_BD) if self.normalize else vector_BD).cpu().numpy()
        return vectors_QD

    def states(self, ids: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """Float32 [L, D] of each text."""
        found = [np.empty((0, self.width), np.float32)] * len(ids)
        for rows, hidden_BLD in self._hidden(ids):
            for row, states_LD in zip(rows, normalized(hidden_BLD).cpu().numpy()):
                found[row] = states_LD
        return found

    @torch.inference_mode()
    def _hidden(self, ids: Sequence[Sequence[int]]) -> list[tuple[list[int], Tensor]]:
        """The hidden states [B, L, D] of the texts of each length, with their numbers."""
        order = sorted(range(len(ids)), key=lambda number: len(ids[number]))
        groups: list[tuple[int, int, int]] = []
        begin = 0
        for length, members in groupby(order, key=lambda number: len(ids[number])):
            count = len(list(members))
            groups.append((begin, count, length))
            begin += count * length
        tokens = [token for number in order for token in ids[number]]
        with threads_for(len(tokens)):
            states_TD = self._states(tokens, groups)
        found, first = [], 0
        for begin, count, length in groups:
            hidden_BLD = states_TD[begin : begin + count * length].view(count, length, self.width)
            found.append((order[first : first + count], hidden_BLD))
            first += count
        return found

    def _states(self, tokens: list[int], groups: Groups) -> Tensor:
        """Hidden states [T, D]."""
        places = [place for _, count, length in groups for _ in range(count) for place in range(length)]
        filling = [0] * (-len(tokens) % EVEN)
        ids_T = torch.tensor(tokens + filling, device=self.device)
        places_T = torch.tensor(places + filling, device=self.device)
        states = self._norm(embedding(ids_T, self._words) + self._kinds[0] + self._positions[places_T])
        for layer in self._layers:
            states = layer.norm1(states + layer.out(_attended(layer.into(states), groups, self._heads)))
            states = layer.norm2(states + layer.down(self._activation(layer.up(states))))
        return states

    def _layer_of(self, weights: Mapping[str, Tensor], part: str) -> _Layer:
        """The layer whose weights have names that start with `part`."""
        attention = [f"{part}attention.self.{name}" for name in ("query", "key", "value")]
        return _Layer(
            into=self._linear_of(weights, *attention),
            out=self._linear_of(weights, f"{part}attention.output.dense"),
            up=self._linear_of(weights, f"{part}intermediate.dense"),
            down=self._linear_of(weights, f"{part}output.dense"),
            norm1=self._norm_of(weights, f"{part}attention.output.LayerNorm"),
            norm2=self._norm_of(weights, f"{part}output.LayerNorm"),
        )

    def _linear_of(self, weights: Mapping[str, Tensor], *names: str) -> Function:
        """The linear layers of the names side by side, with packed weights if the CPU can use them."""
        weight, bias = (torch.cat([weights[f"{name}.{kind}"] for name in names]) for kind in ("weight", "bias"))
        if can_pack(self.dtype, self.device):
            layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
            layer.load_state_dict({"weight": weight, "bias": bias}, assign=True)
            return packed_forward(layer, self.dtype)
        weight, bias = (each.to(self.device, self.dtype) for each in (weight, bias))
        return lambda input: linear(input.to(self.dtype), weight, bias)

    def _norm_of(self, weights: Mapping[str, Tensor], name: str) -> Function:
        # Copies, so that they do not hold the mapping of the file.
        scale, shift = (weights[f"{name}.{kind}"].clone().to(self.device) for kind in ("weight", "bias"))
        return lambda states: layer_norm(states, (self.width,), scale, shift, self._eps)


@contextmanager
def threads_for(tokens: int) -> Iterator[None]:
    """Computes on one thread until the block ends, if there are few tokens.

    Threads meet after every layer and spin until the last one arrives. If a core is busy with something else, such as
    the clients, that costs more than a second thread gains.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if tokens <= FEW_TOKENS else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _attended(three_TE: Tensor, groups: Groups, heads: int) -> Tensor:
    """Attention within every text, [T, D]; `three_TE` holds queries, keys and values side by side."""
    width = three_TE.shape[1] // 3
    result_TD = three_TE.new_zeros(len(three_TE), width)
    for begin, count, length in groups:
        part = three_TE[begin : begin + count * length].view(count, length, 3, heads, width // heads)
        query, key, value = part.permute(2, 0, 3, 1, 4)
        seen_BHLK = scaled_dot_product_attention(query, key, value)
        result_TD[begin : begin + count * length] = seen_BHLK.transpose(1, 2).reshape(count * length, width)
    return result_TD


def query_tokens(folder: Path, length: int, prompt: str) -> Cut:
    """Tokenize queries after the prompt, cut to `length` tokens, with a model folder's `tokenizer.json`."""
    tokenizer = _tokenizer(folder, length)
    return lambda texts: [list(each.ids) for each in tokenizer.encode_batch([prompt + text for text in texts])]


def passage_tokens(folder: Path, length: int, prompt: str) -> Cut:
    """Tokenize passages from `passage_text`; with `titles: sep`, title and text form a pair, as in `cut_passages`."""
    tokenizer = _tokenizer(folder, length)

    def cut(texts: Sequence[str]) -> list[list[int]]:
        parts = [divided(text) for text in texts]
        ids: list[list[int]] = [[]] * len(texts)
        for separated in {separated for _, _, separated in parts}:
            rows = [row for row, part in enumerate(parts) if part[2] == separated]
            # If a title or text spells out a special token, it is tokenized like any other word.
            tokenizer.encode_special_tokens = separated
            given = [(prompt + title, text) if title else prompt + text for title, text, of in parts if of == separated]
            for row, each in zip(rows, tokenizer.encode_batch(given)):
                ids[row] = list(each.ids)
        return ids

    return cut


class AnyEncoder:
    """The tower for a role, `query` or `passage`, of a retriever of any other kind: a folder, or one that is loaded."""

    def __init__(self, retriever: Path | BiEncoder, context: Context, role: Role = "query") -> None:
        from stillhouse.models.acceleration.replaced import keep_packed
        from stillhouse.models.encoder import BiEncoder
        from stillhouse.models.token_states import state_width

        self.encoder = BiEncoder.load(retriever) if isinstance(retriever, Path) else retriever
        self.context, self.role = context, role
        self.width, self.normalize = self.encoder.width, self.encoder.settings.normalize
        self.state_width = state_width(self.encoder)
        # Packed once here instead of for every text.
        keep_packed(self.encoder, context.torch_device())

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        return self.encoder.texts(texts, self.role).ids

    def vectors(self, ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        from stillhouse.models.encoder import encode

        texts = replace(self.encoder.texts([], self.role), ids=[list(each) for each in ids])
        return encode(self.encoder, texts, self.context, "texts", EXACT)

    def states(self, ids: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        from stillhouse.models.token_states import TokenReader

        return TokenReader(self.encoder, self.context, EXACT).states(ids)


def _weights(folder: Path, part: str) -> dict[str, Tensor]:
    """The weights of a BERT whose names begin with `part`, in fp32; mapped from the file if they are fp32 there."""
    with safe_open(folder / "model.safetensors", framework="pt") as read:
        # In a model with a head, the names of the encoder's weights have a prefix.
        names = {name.removeprefix("bert."): name for name in read.keys()}  # noqa: SIM118 (it is no mapping)
        return {name: read.get_tensor(stored).float() for name, stored in names.items() if name.startswith(part)}


def _tokenizer(folder: Path, length: int) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(length)
    return tokenizer
