"""A LoRA adapter that peft wrote, as a model: its change is added to the weights that it was trained on."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel

from stillhouse.core.artifacts import MANIFEST
from stillhouse.core.errors import InputError
from stillhouse.models.encoder_settings import CONFIG, MODULES, is_decoder, json_object, transformer_in
from stillhouse.models.model_place import ADAPTER, base_of, downloaded, locate
from stillhouse.models.transformer import load_model, read_tensors, reading, shapes_of

CHANGE = "adapter_model.safetensors"
INSIDE = "base_model.model."
"""Begins the names of an adapter's tensors."""


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
