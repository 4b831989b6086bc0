"""How much memory a retriever's training takes: what holds the parameters is computed, the rest measured on a text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from stillhouse.models.acceleration.precision import autocast
from stillhouse.models.acceleration.unpadded import transformers_in
from stillhouse.models.encoder import BiEncoder, EncoderTexts
from stillhouse.training.settings import RetrieverConfig

FP32 = 4
"""Bytes of a number."""


def expected_memory(
    encoder: BiEncoder, queries: EncoderTexts, passages: EncoderTexts, config: RetrieverConfig, device: torch.device
) -> Mapping[str, int]:
    """The bytes that a training takes for a batch, by what takes them; not those of Python and its libraries.

    Activations are what the backward pass needs of texts that are encoded together, padded to the longest. The model
    must not compute its layers twice yet, whatever `config.gradient_checkpointing`.
    """
    weights = list(encoder.parameters())
    trained = FP32 * sum(weight.numel() for weight in weights if weight.requires_grad)
    together = config.mini_batch_size if config.gradient_cache and config.mini_batch_size else len(passages)
    padded = [min(len(texts), together) * int(texts.lengths().max()) for texts in (queries, passages)]
    tokens = max(padded) if config.gradient_cache else sum(padded)
    one, two = (_kept_bytes(encoder, passages, count, config, device) for count in (1, 2))
    of_text = two - one
    a_token = of_text / int(passages.lengths().max())
    models = transformers_in(encoder) if config.gradient_checkpointing else []
    for model in models[:1]:  # the states between layers, and all that one layer keeps
        layers = model.config.num_hidden_layers
        a_token = a_token / layers + FP32 * layers * model.config.hidden_size
    return {
        "weights": sum(weight.numel() * weight.element_size() for weight in weights),
        "their best state": trained,
        "gradients": trained,
        "optimiser states": 2 * trained,
        "activations": one - of_text + int(tokens * a_token),
    }


def _kept_bytes(
    encoder: BiEncoder, texts: EncoderTexts, count: int, config: RetrieverConfig, device: torch.device
) -> int:
    """What is kept for the backward pass of the longest text, `count` times. Draws from no random state."""
    kept: dict[int, int] = {}
    own = {weight.untyped_storage().data_ptr() for weight in encoder.parameters()}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    rows = np.full(count, texts.lengths().argmax())
    encoder.to(device).train()
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        autocast(config.precision, device),
        torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor),
    ):
        vectors_BD = encoder(*texts.batch(rows, device), texts.role)
        del vectors_BD
    return sum(kept.values())
