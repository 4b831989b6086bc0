"""Loads a Transformer from any Hugging Face model folder; every model loader uses this file.

Faults of the folder are bad input. These are checked, the first two before memory is taken for the model:

1. `config.json` names a model type of transformers and builds a model, without memory for its weights;
2. that model has about as many numbers as the weight files hold;
3. the files have every tensor of the encoder in the configured shape, and all numbers are finite;
4. the tokenizer's ids are rows of the word embeddings, and the model's output for a short text is finite.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from stillhouse.errors import InputError
from stillhouse.retrieval.models.model_files import (
    reading,
    refuse_not_finite,
    shapes_of,
    shown,
    weight_files,
)
from stillhouse.retrieval.models.saved_files import CONFIG, INDEX, REMEDY, WEIGHTS, json_object, transformer_in
from stillhouse.retrieval.models.unsupported import INSTEAD

SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
"""Sizes that cannot exceed the number of weights."""
HEADROOM = 10_000_000
"""Numbers allowed beyond twice those in the files, for a new head on a small encoder: 40 MB in float32."""
HARMLESS = "pooler"
"""A part that some folders lack and no vector needs: BERT's pooler, if the model was saved with its head."""


@dataclass(frozen=True)
class LoadedModel:
    """A model in float32 and evaluation mode. `absent` names the parameters that the folder lacks, which are random."""

    model: PreTrainedModel
    absent: frozenset[str]

    @property
    def new_head(self) -> bool:
        """Whether part of the model beyond the encoder is random."""
        return any(not name.startswith(_prefix(self.model)) for name in self.absent)


def read_config(folder: Path, **changes: Any) -> PreTrainedConfig:
    """A folder's configuration; `changes` override it, as in `num_labels=1`.

    Raises `InputError` for a file that is missing or damaged, and for a model type unknown to transformers.
    """
    folder = transformer_in(folder)
    path = folder / CONFIG
    kind = json_object(path).get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        raise InputError(
            f"{path} names the model type {str(kind)[:80]!r}, which transformers does not have, and custom code from a "
            "model folder is never run; use another model or a newer transformers"
        )
    with reading(path):
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, **changes
        )
    config.chunk_size_feed_forward = 0  # only saves memory, and fails for lengths that it does not divide
    return config


def keep_layers(config: PreTrainedConfig, count: int) -> None:
    """Cut a configuration to its first `count` layers."""
    config.num_hidden_layers = count
    kinds = getattr(config, "layer_types", None)  # ModernBERT's layers attend globally or locally
    if kinds is not None:
        config.layer_types = kinds[:count]


def load_model(auto: Any, folder: Path, config: PreTrainedConfig | None = None, *, cut: bool = False) -> LoadedModel:
    """Load a model of an auto class (`AutoModel`, `AutoModelForMaskedLM`, ...) in float32.

    `config` comes from `read_config` and may be changed; with `cut` it asks for fewer layers than the folder has. A
    head that the folder lacks, or has in another shape, is drawn from torch's random state. Raises `InputError` for
    weights that are missing, damaged, a pickle, not finite, or that do not fit the configuration.
    """
    config, folder = config or read_config(folder), transformer_in(folder)
    if type(config) not in auto._model_mapping:
        raise InputError(
            f"{folder / CONFIG} names the model type {config.model_type!r}, of which transformers has no "
            f"{auto.__name__}; {INSTEAD}"
        )
    files = weight_files(folder)
    shapes = {name: shape for file in files for name, shape in shapes_of(file).items()}
    weights = folder / (WEIGHTS if len(files) == 1 and files[0].name == WEIGHTS else INDEX)
    _refuse_absurd(auto, folder, config, shapes)
    vars(config).pop("transformers_weights", None)  # would name another weight file than those just checked
    with reading(weights):
        model, info = auto.from_pretrained(
            folder,
            config=config,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # named below, with both shapes
            use_safetensors=True,
            local_files_only=True,
            dtype=torch.float32,
            trust_remote_code=False,
        )
    absent = _refuse_misfit(model, info, folder, weights, cut)
    refuse_not_finite(model.state_dict(), weights)
    return LoadedModel(model, absent)


def random_model(folder: Path, config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    """An encoder in float32 and evaluation mode with parameters drawn from `seed` by its own initialisation.

    `config` comes from `read_config(folder)` and may be changed. Torch's random state does not change. Raises
    `InputError` for a configuration that builds no model.
    """
    with reading(folder / CONFIG), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` would also seed the GPUs
        model: PreTrainedModel = AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)
    return model.eval()


def _refuse_absurd(auto: Any, folder: Path, config: PreTrainedConfig, shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse a configuration that asks for far more than the files hold, before any memory is taken for it."""
    held = sum(map(prod, shapes.values()))
    for name in SIZES:
        size = getattr(config, name, None)
        if isinstance(size, int) and not 1 <= size <= (len(shapes) if name == "num_hidden_layers" else held):
            raise InputError(f"{folder / CONFIG} asks for {name} {size:,}, which the weights do not hold; {REMEDY}")
    with reading(folder / CONFIG), torch.device("meta"):
        skeleton = auto.from_config(config, trust_remote_code=False)
    asked = sum(parameter.numel() for parameter in skeleton.parameters())
    if asked > 2 * held + HEADROOM:
        raise InputError(
            f"{folder / CONFIG} asks for a model of {asked:,} numbers, but the weights hold {held:,}; {REMEDY}"
        )


def _refuse_misfit(
    model: PreTrainedModel, info: dict[str, Any], folder: Path, weights: Path, cut: bool
) -> frozenset[str]:
    """The names of the random parameters. Refuse an encoder that is not completely in the weights."""
    prefix = _prefix(model)
    for name, own, asked in sorted(info["mismatched_keys"]):
        if name.startswith(prefix):
            raise InputError(
                f"{folder / CONFIG} does not fit {weights.name}: {name} is {shown(own)} there and {shown(asked)} in "
                f"the configuration; {REMEDY}"
            )
    missing = set(info["missing_keys"])
    lacking = sorted(name for name in missing if name.startswith(prefix) and HARMLESS not in name.split("."))
    if lacking:
        raise InputError(
            f"{folder / CONFIG} does not fit {weights.name}, which lacks {len(lacking)} of the encoder's tensors, such "
            f"as {lacking[0]}; {REMEDY}"
        )
    layers = {_any_layer(name, model) for name in model.state_dict() if name.startswith(prefix)}
    beyond = sorted(name for name in info["unexpected_keys"] if _any_layer(name, model) in layers)
    if beyond and not cut:
        raise InputError(
            f"{folder / CONFIG} does not fit {weights.name}, which has layers that the configuration leaves out, such "
            f"as {beyond[0]}; {REMEDY}"
        )
    return frozenset(missing | {name for name, *_ in info["mismatched_keys"]})


def _prefix(model: PreTrainedModel) -> str:
    """The prefix of the encoder's parameter names in a model with a head."""
    return "" if model.base_model is model else f"{model.base_model_prefix}."


def _any_layer(name: str, model: PreTrainedModel) -> str:
    """A parameter's name without its layer number, or with a mark if it is in no layer."""
    bare, count = re.subn(r"(?<=\.)\d+(?=\.)", "N", name.removeprefix(f"{model.base_model_prefix}."))
    return bare if count else f"{bare} (in no layer)"


def refuse_unusable(
    folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, of_pairs: bool = False
) -> None:
    """Raises `InputError` for the tokenizer of another model, and for a model that cannot read a short text.

    Some wrong settings show only then, such as a negative `layer_norm_eps`. With `of_pairs` the model reads a pair of
    texts, with token types if it has any.
    """
    words = model.get_input_embeddings().weight
    assert isinstance(words, Tensor)
    refuse_larger_vocabulary(folder, tokenizer, len(words))
    with reading(folder / CONFIG), torch.inference_mode():
        # Calling the tokenizer itself would change its truncation and padding, which are saved with it.
        encoding = tokenizer.backend_tokenizer.encode("a", "a" if of_pairs else None)
        used = sum(encoding.attention_mask)
        inputs = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask}
        if of_pairs and reads_types(model):
            inputs["token_type_ids"] = encoding.type_ids
        numbers = model(**{name: torch.tensor([values[:used]]) for name, values in inputs.items()})[0]
    if not numbers.isfinite().all():
        raise InputError(f"{folder / CONFIG}: the model's output for a short text is not finite; {REMEDY}")


def reads_types(model: PreTrainedModel) -> bool:
    """Whether a model has token types, which mark the second text of a pair."""
    return getattr(model.config, "type_vocab_size", 1) > 1


def refuse_larger_vocabulary(folder: Path, tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
    """Raises `InputError` for a tokenizer with ids beyond the `rows` of the word embeddings."""
    largest = max([*tokenizer.get_vocab().values(), *tokenizer.all_special_ids])
    if largest >= rows:
        raise InputError(
            f"{folder}: the tokenizer has the id {largest:,}, but the model has embeddings of {rows:,} tokens; give "
            "the model its own tokenizer"
        )
