"""Encodes a few questions soon after the start, with BERT as PyTorch's own encoder layers.

Importing the models of transformers takes longer than everything else that a first answer needs. If a retriever was
written by a Stillhouse step and is a BERT, it is therefore read here: its layers as `torch.nn.TransformerEncoderLayer`
and its tokenizer with the `tokenizers` library. Its vectors equal those of `BiEncoder` except for rounding. `BiEncoder`
reads all other retrievers. A service reads the passage tower in the same way.

Shape suffixes: Q questions, L tokens, D width.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, layer_norm, relu

from stillhouse.artifacts import MANIFEST
from stillhouse.context import Context
from stillhouse.corpus.titles import divided
from stillhouse.monitoring.activity import doing
from stillhouse.retrieval.models.encoder_settings import EncoderSettings, read_settings
from stillhouse.retrieval.models.pooling import normalized, pool
from stillhouse.retrieval.settings import InferenceConfig

EXACT = InferenceConfig(precision="fp32")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": gelu, "relu": relu}
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
QUERY_TOWER = "query"
"""The folder of a separate query tower."""


class QueryEncoder(Protocol):
    """Turns questions into vectors. With `normalize` they have length 1."""

    width: int
    normalize: bool

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Float32 [Q, D]; each text follows the retriever's prompt, if any, and is cut to its `query_length`."""


@doing("loading the model")
def open_query_encoder(folder: Path, context: Context) -> QueryEncoder:
    """Read a retriever to encode questions. Raises `InputError` as `BiEncoder.load` does."""
    if (folder / MANIFEST).is_file():
        settings = read_settings(folder)
        tower = folder / QUERY_TOWER if settings.towers == "separate" else folder
        if is_plain_bert(tower, settings.query_length) and not settings.projection and not settings.truncate_dim:
            return PlainBert(tower, settings, context.torch_device())
    return AnyEncoder(folder, context)


def open_passage_encoder(folder: Path, queries: PlainBert, context: Context) -> PlainBert | None:
    """The passage tower of the retriever that `queries` were read from, or None if `PlainBert` cannot compute it."""
    settings = read_settings(folder)
    if not is_plain_bert(folder, settings.passage_length):
        return None
    tokens = PassageTokens(folder, settings.passage_length, settings.passage_prompt)
    if settings.towers == "separate":
        return PlainBert(folder, settings, context.torch_device(), tokens)
    return queries.with_tokens(tokens)


def is_plain_bert(folder: Path, length: int) -> bool:
    """Whether a folder has a BERT and tokenizer that `PlainBert` can compute, up to `length` tokens."""
    if not all((folder / name).is_file() for name in FILES):
        return False
    config, tokenizer = _json(folder / "config.json"), _json(folder / "tokenizer_config.json")
    return (
        config.get("model_type") == "bert"
        and config.get("hidden_act") in ACTIVATIONS
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not config.get("is_decoder")
        and not config.get("add_cross_attention")
        and config.get("max_position_embeddings", 0) >= length
        and tokenizer.get("truncation_side", "right") == "right"
    )


class PlainBert(nn.Module):
    """A BERT without a head in fp32 that reads one text at a time, without padding.

    It reads queries unless `tokens` tokenizes texts differently.
    """

    def __init__(
        self, folder: Path, settings: EncoderSettings, device: torch.device, tokens: PlainTokens | None = None
    ) -> None:
        super().__init__()
        config = _json(folder / "config.json")
        self.width, self.normalize, self.pooling = int(config["hidden_size"]), settings.normalize, settings.pooling
        self.tokens = tokens or QueryTokens(folder, settings.query_length, settings.query_prompt)
        self.device, self.eps = device, float(config["layer_norm_eps"])
        part = "embeddings."
        weights = _weights(folder, part)
        names = ("word_embeddings.weight", "token_type_embeddings.weight", "position_embeddings.weight")
        self.words, self.kinds, self.positions = (weights[part + name].to(device) for name in names)
        self.scale, self.shift = (weights[f"{part}LayerNorm.{name}"].to(device) for name in ("weight", "bias"))
        # Mapped a second time: an encoder that packs the layers' weights then gives back the memory of these pages,
        # while the embeddings stay mapped. Biases and norms are copies, so that they do not hold the mapping.
        of_layers = {
            name: values.clone() if values.ndim == 1 else values
            for name, values in _weights(folder, "encoder.").items()
        }
        count = int(config["num_hidden_layers"])
        self.layers = nn.ModuleList(_layer(of_layers, f"encoder.layer.{number}.", config) for number in range(count))
        self.to(device).eval()

    def with_tokens(self, tokens: PlainTokens) -> PlainBert:
        """The same model with the same weights, for texts that are tokenized differently."""
        other = copy(self)
        other.tokens = tokens
        return other

    def without_layers(self) -> PlainBert:
        """The embeddings alone, for an encoder that has its own layers."""
        other = copy(self)
        other.__dict__["_modules"] = {}
        return other

    def embedded(self, ids_T: Tensor, places_T: Tensor) -> Tensor:
        """The states [..., D] that the first layer reads, for token ids (int64) at places in their texts."""
        states = embedding(ids_T, self.words) + self.kinds[0] + self.positions[places_T]
        return layer_norm(states, (self.width,), self.scale, self.shift, self.eps)

    def forward(self, ids_1L: Tensor) -> Tensor:
        """Hidden states [1, L, D] of one text's token ids, int64."""
        states = self.embedded(ids_1L, torch.arange(ids_1L.shape[1], device=self.device))
        for layer in self.layers:
            states = layer(states)
        return states

    @torch.inference_mode()
    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors_QD = np.empty((len(texts), self.width), dtype=np.float32)
        for number, ids in enumerate(self.tokens.cut(texts)):
            ids_1L = torch.tensor([ids], device=self.device)
            vector_1D = pool(self(ids_1L), torch.ones_like(ids_1L), self.pooling)
            vectors_QD[number] = (normalized(vector_1D) if self.normalize else vector_1D)[0].cpu().numpy()
        return vectors_QD


class PlainTokens(Protocol):
    """Tokenizes texts of one role with `tokenizers` alone; the ids equal those of `BiEncoder`, by transformers."""

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, special tokens included."""


class QueryTokens:
    """Tokenizes queries after the prompt, cut to `length` tokens, with a model folder's `tokenizer.json`."""

    def __init__(self, folder: Path, length: int, prompt: str) -> None:
        self.tokenizer, self._prompt = _tokenizer(folder, length), prompt

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self.tokenizer.encode_batch([self._prompt + text for text in texts])
        return [list(each.ids) for each in encoded]


class PassageTokens:
    """Tokenizes passages from `passage_text`; with `titles: sep`, title and text form a pair, as in `cut_passages`."""

    def __init__(self, folder: Path, length: int, prompt: str) -> None:
        self._tokenizer, self._prompt = _tokenizer(folder, length), prompt

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        parts = [divided(text) for text in texts]
        ids: list[list[int]] = [[]] * len(texts)
        for separated in {separated for _, _, separated in parts}:
            rows = [row for row, part in enumerate(parts) if part[2] == separated]
            # If a title or text spells out a special token, it is tokenized like any other word.
            self._tokenizer.encode_special_tokens = separated
            for row, each in zip(rows, self._tokenizer.encode_batch([self._read(*parts[row][:2]) for row in rows])):
                ids[row] = list(each.ids)
        return ids

    def _read(self, title: str, text: str) -> str | tuple[str, str]:
        return (self._prompt + title, text) if title else self._prompt + text


class AnyEncoder:
    """A retriever of any other kind."""

    def __init__(self, folder: Path, context: Context) -> None:
        from stillhouse.acceleration.linear_layers import keep_packed
        from stillhouse.retrieval.models.encoder import BiEncoder

        self.encoder, self.context = BiEncoder.load(folder), context
        self.width, self.normalize = self.encoder.width, self.encoder.settings.normalize
        # Packed once here instead of for every question.
        keep_packed(self.encoder, context.torch_device())

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        from stillhouse.retrieval.models.encoder import encode

        vectors_QD: NDArray[np.float32] = encode(
            self.encoder, self.encoder.queries(texts), self.context, "queries", EXACT
        )
        return vectors_QD


def _weights(folder: Path, part: str) -> dict[str, Tensor]:
    """The weights of a BERT whose names begin with `part`, in fp32; mapped from the file if they are fp32 there."""
    with safe_open(folder / "model.safetensors", framework="pt") as read:
        # In a model with a head, the names of the encoder's weights have a prefix.
        names = {name.removeprefix("bert."): name for name in read.keys()}  # noqa: SIM118 (it is no mapping)
        return {name: read.get_tensor(stored).float() for name, stored in names.items() if name.startswith(part)}


def _layer(weights: Mapping[str, Tensor], part: str, config: Mapping[str, Any]) -> nn.TransformerEncoderLayer:
    """The BERT layer whose weights have names that start with `part`."""
    own = {
        "self_attn.out_proj": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "linear1": "intermediate.dense",
        "linear2": "output.dense",
        "norm2": "output.LayerNorm",
    }
    with torch.device("meta"):  # the weights replace these
        layer = nn.TransformerEncoderLayer(
            int(config["hidden_size"]),
            int(config["num_attention_heads"]),
            int(config["intermediate_size"]),
            dropout=0.0,
            activation=ACTIVATIONS[config["hidden_act"]],
            layer_norm_eps=float(config["layer_norm_eps"]),
            batch_first=True,
        )
    state = {}
    for kind in ("weight", "bias"):
        three = [weights[f"{part}attention.self.{name}.{kind}"] for name in ("query", "key", "value")]
        state[f"self_attn.in_proj_{kind}"] = torch.cat(three)
        state |= {f"{ours}.{kind}": weights[f"{part}{theirs}.{kind}"] for ours, theirs in own.items()}
    layer.load_state_dict(state, assign=True)
    return layer


def _tokenizer(folder: Path, length: int) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(length)
    return tokenizer


def _json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
