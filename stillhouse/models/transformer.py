"""Opens the Transformer of a Hugging Face model folder; every model loader uses this file.

Any fault of the folder is bad input, reported with the file's name. Errors about a lack of memory or disk space are
not. These are checked, the first two before memory is taken for the model:

1. `config.json` names a model type of transformers and builds a model, without memory for its weights;
2. that model has about as many numbers as the weight files hold;
3. the files have every tensor of the encoder in the configured shape, and all numbers are finite;
4. the tokenizer's ids are rows of the word embeddings, and the model's output for a short text is finite.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from stillhouse.core.errors import RUST_OS_ERROR, InputError
from stillhouse.models.encoder_settings import (
    CONFIG,
    INDEX,
    REMEDY,
    WEIGHTS,
    json_object,
    refuse_foreign_weights,
    transformer_in,
)
from stillhouse.models.model_place import INSTEAD

OUT_OF_MEMORY = "DefaultCPUAllocator"
"""The start of PyTorch's message when a CPU runs out of memory, which is a plain RuntimeError."""
LONGEST_REASON = 200


@contextmanager
def reading(file: Path, remedy: str = REMEDY) -> Iterator[None]:
    """Turn whatever a library raises while it reads `file` into `InputError`.

    Libraries raise nearly anything over a damaged file: KeyError, TypeError, AssertionError, plain Exception. Errors
    with a system error number and a lack of memory are not the file's fault and pass through.
    """
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        message = str(error)
        of_the_system = isinstance(error, OSError) and error.errno is not None
        if of_the_system or OUT_OF_MEMORY in message or RUST_OS_ERROR.search(message):
            raise
        reason = " ".join([type(error).__name__ + ":", *message.split()])
        raise InputError(f"{file} cannot be read ({reason[:LONGEST_REASON].rstrip(':')}); {remedy}") from error


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a Hugging Face model folder.

    Raises `InputError` if there are none, for example because the weights are a pickle, which could run code.
    """
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        files = json_object(folder / INDEX).get("weight_map")
        names = set(files.values()) if isinstance(files, dict) and all(map(_is_name, files.values())) else set()
        if not names:
            raise InputError(f"{folder / INDEX} names no weight files; {REMEDY}")
        for name in sorted(names):
            if not (folder / name).is_file():
                raise InputError(f"{folder / name} is missing, but {INDEX} names it; {REMEDY}")
        return [folder / name for name in sorted(names)]
    refuse_foreign_weights(folder)
    raise InputError(f"{folder / WEIGHTS} is missing; {REMEDY}")


def _is_name(value: object) -> bool:
    """Whether a value names a file in the folder itself."""
    return isinstance(value, str) and value not in ("", ".", "..") and Path(value).name == value


def shapes_of(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of a safetensors file's tensors, from its header alone. Raises `InputError` for a damaged file."""
    with reading(path), safe_open(path, "pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no mapping)


def read_tensors(path: Path, shapes: Mapping[str, tuple[int | None, ...]]) -> dict[str, Tensor]:
    """The tensors named in `shapes` from a safetensors file, in float32. None in a shape matches any size.

    Raises `InputError` for a file that is missing or damaged, for a tensor that is missing or has another shape, and
    for numbers that are not finite.
    """
    if not path.is_file():
        raise InputError(f"{path} is missing; {REMEDY}")
    found = shapes_of(path)
    for name, wanted in shapes.items():
        own = found.get(name)
        if own is None or len(own) != len(wanted) or any(w not in (None, size) for size, w in zip(own, wanted)):
            asked = "x".join("any" if size is None else str(size) for size in wanted)
            has = "lacks it" if own is None else f"has {shown(own)}"
            raise InputError(f"{path}: {name} must have the shape {asked}, but the file {has}; {REMEDY}")
    with reading(path), safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name).float() for name in shapes}
    refuse_not_finite(tensors, path)
    return tensors


def refuse_not_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raises `InputError` for weights that are NaN or infinite; `path` is their file."""
    for name, tensor in tensors.items():
        # A sum is a tenth of the work. It is not finite if any number is not, and rarely otherwise.
        if tensor.is_floating_point() and not tensor.sum().isfinite() and not tensor.isfinite().all():
            wrong = "NaN" if tensor.isnan().any() else "infinite"
            raise InputError(f"{path}: weights of {name} are {wrong}; train the model again, or {REMEDY}")


def shown(shape: tuple[int, ...] | torch.Size) -> str:
    """A shape in readable form: 30522x384."""
    return "x".join(map(str, shape)) or "a single number"


SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
"""Sizes in the configuration that cannot exceed the number of weights."""
HEADROOM = 10_000_000
"""Numbers allowed beyond twice those in the files, for a new head on a small encoder: 40 MB in float32."""
HARMLESS = "pooler"
"""A part that some folders lack and that is not needed for vectors: BERT's pooler, if the model was saved with its
head."""


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
            f"{path} names the model type {str(kind)[:80]!r}, which transformers does not support, and custom code "
            "from a model folder is never run; use another model or a newer transformers"
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


def configuration(model: PreTrainedModel) -> dict[str, Any]:
    """A model's configuration in JSON, without its origin."""
    content: dict[str, Any] = json.loads(model.config.to_json_string(use_diff=False))
    return {name: value for name, value in content.items() if name not in ("_name_or_path", "transformers_version")}


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
    """Refuse a configuration that needs far more weights than the files hold, before memory is allocated."""
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


TABLE = "position_embeddings"
"""The Hugging Face name of the table in BERT, RoBERTa, MPNet, DistilBERT, ELECTRA and similar models."""


def longest_text(model: PreTrainedModel) -> int | None:
    """The most tokens of a text, including special tokens, or None if there is no limit.

    Models like RoBERTa count from the position after the padding token's, so 514 rows give 512 positions. A model
    without a table, for example with rotary positions, reads as many as its configuration says.
    """
    for name, module in model.named_modules():
        if name.rsplit(".", 1)[-1] == TABLE and isinstance(module, nn.Embedding):
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    longest = getattr(model.config, "max_position_embeddings", None)
    return longest if isinstance(longest, int) and longest > 0 else None


def refuse_longer(model: PreTrainedModel, what: str, **lengths: int) -> None:
    """Raises `InputError` for a length, given by its setting's name, that exceeds what the model reads."""
    longest = longest_text(model)
    for name, length in lengths.items():
        if longest is not None and length > longest:
            raise InputError(f"{what} reads at most {longest} tokens; lower {name} from {length}")
