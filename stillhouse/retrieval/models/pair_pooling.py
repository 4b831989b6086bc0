"""How a cross-encoder's states become a score: a scoring layer on [CLS], or the cosine of the pair's two halves.

`cls` is the papers' form: the model of `AutoModelForSequenceClassification`. With `cosine` there is no new layer. Query
and passage are read together, in one sequence without token types, as retrievers read their texts. The score is
`SCALE` times the cosine of the mean state of the query's half and that of the passage's half. So it begins with what a
retriever knows.

Shape suffixes: P pairs, L tokens, D hidden width.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForSequenceClassification, BatchEncoding, PreTrainedConfig

from stillhouse.errors import InputError
from stillhouse.retrieval.models.model_files import reading
from stillhouse.retrieval.models.pooling import pool
from stillhouse.retrieval.models.saved_files import CONFIG, MODEL, REMEDY, is_saved_cross_encoder, saved_model

CLS, COSINE = "cls", "cosine"
PAIR_POOLINGS = (CLS, COSINE)
OWN_POOLING = "stillhouse_pooling"
"""The configuration entry that says `cosine`; a folder without it has a scoring layer."""
OF_SENTENCE_TRANSFORMERS = "sentence_transformers"
"""The configuration entry for the `CrossEncoder` of sentence-transformers."""
ACTIVATION, OLD_ACTIVATION = "activation_fn", "sbert_ce_default_activation_function"
"""The entries for its activation function: within the entry above, and of versions before 4."""
SCALE = 20.0
"""One divided by a temperature of 0.05, at which recipes train retrievers."""


def auto_class(pooling: str) -> Any:
    """The class that loads the model."""
    assert pooling in PAIR_POOLINGS, pooling
    return AutoModel if pooling == COSINE else AutoModelForSequenceClassification


def write_pooling_entry(config: PreTrainedConfig, pooling: str) -> None:
    """Set the entries of a model's configuration for a pooling, in place of those of the model that it began from."""
    for name in (OWN_POOLING, OF_SENTENCE_TRANSFORMERS):
        vars(config).pop(name, None)
    if pooling == COSINE:
        setattr(config, OWN_POOLING, COSINE)
    else:
        setattr(config, OF_SENTENCE_TRANSFORMERS, {ACTIVATION: "torch.nn.modules.linear.Identity"})


def read_pooling_entry(folder: Path, config: PreTrainedConfig) -> str:
    """The pooling of a cross-encoder's folder. Raises `InputError` for one that this version does not have."""
    named = getattr(config, OWN_POOLING, CLS)
    if named not in PAIR_POOLINGS:
        raise InputError(
            f"{folder / CONFIG} names the {OWN_POOLING} {str(named)[:80]!r}, which is none of "
            f"{', '.join(PAIR_POOLINGS)}; use the version of Stillhouse that trained it"
        )
    return str(named)


def read_activation(folder: Path, config: PreTrainedConfig) -> nn.Module:
    """What the `CrossEncoder` of sentence-transformers makes of a raw score: the sigmoid unless the folder says more.

    Raises `InputError` for a function that is not PyTorch's own, because code from a model folder is never run.
    """
    if hasattr(config, OWN_POOLING):
        return nn.Identity()
    said = saved_model(folder) if is_saved_cross_encoder(folder) else {}
    entry = getattr(config, OF_SENTENCE_TRANSFORMERS, None) or {}
    name = said.get(ACTIVATION) or entry.get(ACTIVATION) or getattr(config, OLD_ACTIVATION, None) or "torch.nn.Sigmoid"
    found = getattr(nn, str(name).rsplit(".", 1)[-1], None) if str(name).startswith("torch.nn.") else None
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise InputError(
            f"{folder} names the activation function {str(name)[:80]!r}, which is none of torch.nn; save the "
            "cross-encoder with one of these, such as torch.nn.Sigmoid"
        )
    with reading(folder):
        return found()


def read_prompt(folder: Path) -> str:
    """The text that the `CrossEncoder` of sentence-transformers puts before every query."""
    said = saved_model(folder) if is_saved_cross_encoder(folder) else {}
    prompts, name = said.get("prompts") or {}, said.get("default_prompt_name")
    text = prompts.get(name, "") if isinstance(prompts, dict) else None
    if not isinstance(text, str):
        raise InputError(f"{folder / MODEL}: its prompts are not texts with names; {REMEDY}")
    return text


def passage_halves(encoded: BatchEncoding) -> list[list[int]]:
    """For each pair, 0 at the tokens of the query's half and 1 at those of the passage's, as BERT's token types.

    The passage's half begins with the passage's first token and ends with the pair, so separators between query and
    passage belong to the query. The half of an empty passage is the pair's last token. Works for every fast tokenizer,
    whether or not it gives token types.
    """
    halves = []
    for number, ids in enumerate(encoded["input_ids"]):
        sides = encoded.sequence_ids(number)
        begin = sides.index(1) if 1 in sides else len(ids) - 1
        halves.append([0] * begin + [1] * (len(ids) - begin))
    return halves


def cosine_of_halves(states_PLD: Tensor, mask_PL: Tensor, halves_PL: Tensor) -> Tensor:
    """`SCALE` times the cosine of the mean states of the query's half and of the passage's half: float32 [P].

    `mask_PL` is 1 at tokens and 0 at padding; `halves_PL` comes from `passage_halves`.
    """
    kept_PL, passage_PL = mask_PL.bool(), halves_PL.bool()
    query_PD, passage_PD = (
        pool(states_PLD.float(), part_PL, "mean") for part_PL in (kept_PL & ~passage_PL, kept_PL & passage_PL)
    )
    return SCALE * torch.cosine_similarity(query_PD, passage_PD, dim=1)
