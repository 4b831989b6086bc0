"""Low-rank adaptation (LoRA, Hu et al. 2021): instead of a matrix W, training changes B A, of a low rank.

A model of billions of parameters then trains with the optimiser's states of a few millions. The change is added to the
weights at the end, so the trained model has the files and the speed of its base model; it is saved apart too, as an
adapter of that. The layers are peft's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from stillhouse.core.errors import InputError
from stillhouse.models.acceleration.unpadded import transformers_in
from stillhouse.models.adapter import Adapter
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.text_generator import TextGenerator

SCALE = 2
"""The change is scaled by this, whatever the rank (`lora_alpha` is the rank times this)."""


@contextmanager
def low_rank(encoder: BiEncoder | TextGenerator, rank: int, frozen: str = "fp32") -> Iterator[None]:
    """Until the block ends, train changes of this rank to the linear layers of the Transformers alone.

    Then they are merged into the weights in fp32. Until then, with `frozen` "bf16", the layers' own weights are in
    bf16, for training under autocast. With rank 0 nothing changes. Raises `InputError` for a tower without a
    Transformer.
    """
    adapted = [_adapted(model, rank) for model in _transformers(encoder)] if rank else []
    if frozen == "bf16":
        for layer in encoder.modules():
            if isinstance(layer, nn.Linear) and not layer.weight.requires_grad:
                layer.weight.data = layer.weight.data.bfloat16()
    yield
    encoder.adapters = [Adapter.of(model) for model in adapted]
    for model in adapted:
        model.float().merge_and_unload()
    encoder.requires_grad_(True)


def _adapted(model: PreTrainedModel, rank: int) -> Any:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise InputError("lora_rank needs the package peft; run `pip install 'stillhouse[lora]'`") from error
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=SCALE * rank, target_modules="all-linear"))


def _transformers(encoder: BiEncoder | TextGenerator) -> list[PreTrainedModel]:
    if isinstance(encoder, TextGenerator):
        return [encoder.model]
    if not all(transformers_in(tower) for tower in encoder.towers.values()):
        raise InputError("lora_rank is for towers with a Transformer; set it to 0")
    return transformers_in(encoder)


@contextmanager
def checkpointed(encoder: BiEncoder, wanted: bool) -> Iterator[None]:
    """Until the block ends, compute the layers' states a second time for the gradient instead of keeping them."""
    models = transformers_in(encoder) if wanted else []
    for model in models:
        if not model.supports_gradient_checkpointing:
            raise InputError(f"gradient_checkpointing: a {type(model).__name__} cannot do it; set it to false")
        model.gradient_checkpointing_enable({"use_reentrant": False})
    yield
    for model in models:
        model.gradient_checkpointing_disable()
