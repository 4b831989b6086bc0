"""Opens the inputs of a pre-training run and checks that they fit together before training starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stillhouse.core.artifacts import MANIFEST, copy_content, read_manifest
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.models.source import model_or
from stillhouse.models.transformer import refuse_longer
from stillhouse.pretraining.generator import Generator
from stillhouse.pretraining.heads import output_matrix
from stillhouse.pretraining.masked_lm import MaskedLanguageModel, load_masked_lm, require_head, require_same_vocabulary
from stillhouse.pretraining.objectives import Objective
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.pretraining.tokens import SpecialTokens, TokenCache

Folders = Mapping[str, Path]
"""The inputs of the step `pretrain`."""


def pass_on(init: Path, folder: Path) -> dict[str, Any]:
    """Copy a model folder, including its towers, and return the facts of its manifest."""
    copy_content(init, folder)
    return read_manifest(init, verify=False).facts if (init / MANIFEST).is_file() else {}


@doing("loading the model")
def open_encoder(config: PretrainingConfig, folders: Folders) -> MaskedLanguageModel:
    """The initial model. Raises `InputError` if its vocabulary differs or it reads fewer than `max_length` tokens."""
    encoder = load_masked_lm(folders["init"], config.seed)
    require_same_vocabulary("model to start from", encoder.tokenizer, _tokenizer_of(folders["tokens"]))
    rows = len(output_matrix(encoder.model)[0])
    if len(encoder.tokenizer) > rows:
        raise InputError(
            f"the model has {rows} tokens but its tokenizer {len(encoder.tokenizer)}; choose another model"
        )
    refuse_longer(encoder.model, "the model", max_length=with_lengths_of(encoder, config).passage_tokens)
    return encoder


def with_lengths_of(encoder: MaskedLanguageModel, config: PretrainingConfig) -> PretrainingConfig:
    """The settings with the initial model's lengths in place of those that are null."""
    own = encoder.settings
    return replace(
        config,
        max_length=config.max_length or own.passage_length,
        query_length=config.query_length or own.query_length,
        passage_length=config.passage_length or own.passage_length,
    )


@doing("reading the tokens")
def open_cache(encoder: MaskedLanguageModel, objective: Objective, folders: Folders) -> TokenCache:
    """The token cache, with importance if the objective needs it.

    Raises `InputError` if the objective needs importance or a generator and none is given.
    """
    if objective.needs_generator and "generator" not in folders:
        raise InputError(
            f"objective {objective.name!r} needs the input generator: a masked language model that replaces tokens"
        )
    if objective.needs_importance and "importance" not in folders:
        raise InputError(f"objective {objective.name!r} needs the input importance; `stillhouse importance` makes it")
    importance = folders["importance"] if objective.needs_importance else None
    return TokenCache.open(folders["tokens"], SpecialTokens.of(encoder.tokenizer), importance)


@doing("loading the generator")
def open_generator(
    config: PretrainingConfig, objective: Objective, folders: Folders, cache: TokenCache, device: torch.device
) -> Generator | None:
    """The objective's generator, if it has one: frozen, learning, or learning from random parameters.

    If `fetch-model` fetched none, the generator is a copy of the initial model.

    Raises `InputError` if it has another vocabulary or an untrained head.
    """
    if not objective.needs_generator:
        return None
    generator = load_masked_lm(model_or(folders["generator"], folders["init"], "generator"), config.seed)
    require_same_vocabulary("generator", generator.tokenizer, _tokenizer_of(folders["tokens"]))
    if objective.generator == "joint_random":
        torch.manual_seed(config.seed)
        generator = replace(generator, model=type(generator.model)(generator.model.config))
    else:
        require_head("generator", generator)
    learns = objective.generator != "frozen"
    return Generator.of(generator.model, cache.specials, device, learns, len(generator.tokenizer))


def start_head(encoder: MaskedLanguageModel, counts_V: NDArray[np.int64]) -> None:
    """Set a new head's bias to the unigram distribution of the training passages, so that it starts at the baseline.

    A head without a bias stays unchanged.
    """
    _, bias_V = output_matrix(encoder.model)
    smoothed_V = torch.from_numpy(counts_V).double() + 0.1
    with torch.no_grad():
        bias_V.copy_((smoothed_V / smoothed_V.sum()).log())


def _tokenizer_of(tokens: Path) -> str:
    return str(read_manifest(tokens, verify=False).facts.get("tokenizer"))
