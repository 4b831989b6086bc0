"""Opens the Transformer of a Hugging Face model folder; every model loader uses this file.

Any fault of the folder is bad input, reported with the file's name. Errors about a lack of memory or disk space are
not. These are checked: `config.json` names a model type of transformers; the files have every tensor of the encoder in
the configured shape; and the tokenizer's ids are rows of the word embeddings.

A LoRA adapter that peft wrote is opened as a model: its change is added to the weights that it was trained on.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from stillhouse.core.artifacts import MANIFEST
from stillhouse.core.errors import RUST_OS_ERROR, InputError
from stillhouse.models.encoder_settings import (
    CONFIG,
    INDEX,
    MODULES,
    REMEDY,
    WEIGHTS,
    is_decoder,
    json_object,
    refuse_foreign_weights,
    transformer_in,
)
from stillhouse.models.model_place import ADAPTER, INSTEAD, base_of, downloaded, locate

OUT_OF_MEMORY = "DefaultCPUAllocator"
"""The start of PyTorch's message when a CPU runs out of memory, which is a plain RuntimeError."""
LONGEST_REASON = 200
HARMLESS = "pooler"
"""A part that some folders lack and that is not needed for vectors: BERT's pooler, if the model was saved with its
head."""
TABLE = "position_embeddings"
"""The Hugging Face name of the table in BERT, RoBERTa, MPNet, DistilBERT, ELECTRA and similar models."""
CHANGE = "adapter_model.safetensors"
INSIDE = "base_model.model."
"""Begins the names of an adapter's tensors."""


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


def shapes_of(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of a safetensors file's tensors, from its header alone. Raises `InputError` for a damaged file."""
    with reading(path), safe_open(path, "pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no mapping)


def read_tensors(path: Path, shapes: Mapping[str, tuple[int | None, ...]]) -> dict[str, Tensor]:
    """The tensors named in `shapes` from a safetensors file, in float32. None in a shape matches any size.

    Raises `InputError` for a file that is missing or damaged, and for a tensor that is missing or has another shape.
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
        return {name: file.get_tensor(name).float() for name in shapes}


def shown(shape: tuple[int, ...] | torch.Size) -> str:
    """A shape in readable form: 30522x384."""
    return "x".join(map(str, shape)) or "a single number"


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


def load_model(auto: Any, folder: Path, config: PreTrainedConfig | None = None) -> LoadedModel:
    """Load a model of an auto class (`AutoModel`, `AutoModelForMaskedLM`, ...) in float32.

    `config` comes from `read_config` and may be changed, for example to fewer layers than the folder has. A head that
    the folder lacks, or has in another shape, is drawn from torch's random state; BERT's pooler, which an encoder saved
    with its language-model head lacks, always alike. Raises `InputError` for weights that are missing, damaged, a
    pickle, or that lack part of the configured encoder.
    """
    config, folder = config or read_config(folder), transformer_in(folder)
    if type(config) not in auto._model_mapping:
        raise InputError(
            f"{folder / CONFIG} names the model type {config.model_type!r}, of which transformers has no "
            f"{auto.__name__}; {INSTEAD}"
        )
    refuse_foreign_weights(folder)
    weights = next((path for path in (folder / WEIGHTS, folder / INDEX) if path.is_file()), None)
    if weights is None:
        raise InputError(f"{folder / WEIGHTS} is missing; {REMEDY}")
    vars(config).pop("transformers_weights", None)  # would name another weight file
    bare = auto is AutoModel
    with reading(Path(f"{weights} with its {CONFIG}")), torch.random.fork_rng(devices=[], enabled=bare):
        if bare:
            torch.default_generator.manual_seed(0)
        model, info = auto.from_pretrained(
            folder,
            config=config,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # named below
            use_safetensors=True,
            local_files_only=True,
            dtype=torch.float32,
            trust_remote_code=False,
        )
    return LoadedModel(model, _refuse_misfit(model, info, folder, weights))


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


def _refuse_misfit(model: PreTrainedModel, info: dict[str, Any], folder: Path, weights: Path) -> frozenset[str]:
    """The names of the random parameters. Refuse an encoder that is not completely in the weights."""
    absent = frozenset({*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])})
    lacking = sorted(name for name in absent if name.startswith(_prefix(model)) and HARMLESS not in name.split("."))
    if lacking:
        raise InputError(
            f"{folder / CONFIG} does not fit {weights.name}, which lacks {len(lacking)} of the encoder's tensors, or "
            f"has them in another shape, such as {lacking[0]}; {REMEDY}"
        )
    return absent


def _prefix(model: PreTrainedModel) -> str:
    """The prefix of the encoder's parameter names in a model with a head."""
    return "" if model.base_model is model else f"{model.base_model_prefix}."


def reads_types(model: PreTrainedModel) -> bool:
    """Whether a model has token types, which mark the second text of a pair."""
    return getattr(model.config, "type_vocab_size", 1) > 1


def refuse_larger_vocabulary(folder: Path, tokenizer: PreTrainedTokenizerBase, words: nn.Module) -> None:
    """Raises `InputError` for the tokenizer of another model: one with ids beyond the word embeddings `words`."""
    rows = len(words.get_parameter("weight"))
    largest = max([*tokenizer.get_vocab().values(), *tokenizer.all_special_ids])
    if largest >= rows:
        raise InputError(
            f"{folder}: the tokenizer has the id {largest:,}, but the model has embeddings of {rows:,} tokens; give "
            "the model its own tokenizer"
        )


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


@contextmanager
def whole_model(folder: Path) -> Iterator[Path]:
    """The folder itself or, for an adapter, one that exists until the block ends: its base model with the change.

    Modules and tokenizer are the adapter's own if it has some, else those of its base model. Raises `InputError` for a
    base model that is missing, for an adapter that cannot be added to it, and without the library peft.
    """
    base = base_of(folder)
    if base is None:
        yield folder
        return
    source, has_modules = locate(base), (folder / MODULES).is_file()
    with (
        whole_model(Path(source) if Path(source).is_dir() else downloaded(source)) as below,
        tempfile.TemporaryDirectory() as place,
    ):
        merged, inside = Path(place) / folder.resolve().name, transformer_in(below)
        shutil.copytree(inside if has_modules else below, merged, ignore=shutil.ignore_patterns(MANIFEST))
        target = merged if has_modules else transformer_in(merged)
        for weights in target.glob("*.safetensors*"):
            weights.unlink()
        shutil.copytree(folder, target, ignore=shutil.ignore_patterns(ADAPTER, CHANGE), dirs_exist_ok=True)
        _added(folder, inside).save_pretrained(target)
        yield merged


def _added(folder: Path, base: Path) -> PreTrainedModel:
    """The Transformer of `base` in float32 with the change that the adapter in `folder` holds."""
    try:
        from peft import PeftConfig, get_peft_model, set_peft_model_state_dict
    except ImportError as error:
        raise InputError(
            f"{folder} is a LoRA adapter, which needs peft; run `pip install 'stillhouse[lora]'`"
        ) from error
    if not (folder / CHANGE).is_file():
        raise InputError(f"{folder / CHANGE} is missing; save the adapter with `save_pretrained` of peft")
    change = read_tensors(
        folder / CHANGE, {name: (None,) * len(shape) for name, shape in shapes_of(folder / CHANGE).items()}
    )
    model = load_model(AutoModel, base).model
    if any(name.startswith(f"{INSIDE}{model.base_model_prefix}.") for name in change):  # trained with its head
        causal = is_decoder(json_object(base / CONFIG))
        model = load_model(AutoModelForCausalLM if causal else AutoModelForMaskedLM, base).model
    with reading(folder / ADAPTER, "give an adapter of a kind that peft can merge, such as LoRA"):
        config = PeftConfig.from_pretrained(str(folder))
        config.task_type = None  # the kind of head, which makes no vectors
        layers = get_peft_model(model, config)
        found: Any = set_peft_model_state_dict(layers, change)
        merged: PreTrainedModel = layers.merge_and_unload().base_model
    if unknown := found.unexpected_keys:
        raise InputError(
            f"{folder / CHANGE} does not fit the model {base}, which has no {unknown[0]}; name the model that it was "
            f"trained on in {ADAPTER}"
        )
    return merged
