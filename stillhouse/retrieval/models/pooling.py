"""How token states become one vector, and the files that make sentence-transformers do the same.

Shape suffixes: B texts, L tokens, D hidden width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from stillhouse.artifacts import write_json
from stillhouse.errors import InputError
from stillhouse.retrieval.models.encoder_settings import PASSAGE_PROMPTS, POOLINGS, SETTINGS, EncoderSettings
from stillhouse.retrieval.models.projection import PROJECTION, write_projection
from stillhouse.retrieval.models.saved_files import MODEL
from stillhouse.retrieval.settings import MODULES

POOLING = "1_Pooling"


def pool(hidden_BLD: Tensor, mask_BL: Tensor, pooling: str) -> Tensor:
    """One vector per text, [B, D]: the first token's state ("cls") or the mean over the tokens that the mask keeps."""
    assert pooling in POOLINGS, pooling
    if pooling == "cls":
        return hidden_BLD[:, 0]
    weights_BL1 = mask_BL.unsqueeze(-1).to(hidden_BLD.dtype)
    return (hidden_BLD * weights_BL1).sum(1) / weights_BL1.sum(1).clamp(min=1)


def write_modules(folder: Path, width: int, settings: EncoderSettings, projection: nn.Linear | None = None) -> None:
    """Make a Hugging Face model folder loadable by `SentenceTransformer(folder)` with the same vectors.

    `width` is the width of the hidden states; `projection` is the layer that `settings.projection` announces. The files
    have the form that sentence-transformers reads since version 2. Raises `InputError` if the layer is missing.
    """
    if settings.projection and projection is None:
        raise InputError(
            f"the encoder ends in a linear layer of width {settings.projection}, which would be lost here; "
            "give its folder to the step directly, as the model to start from"
        )
    assert settings.projection == (projection.out_features if projection else 0), settings
    write_module_list(folder, _modules(settings))
    write_pooling(folder, width, settings)
    if projection is not None:
        write_projection(folder / PROJECTION, projection)
    write_sentence_transformer(folder, settings)


def write_module_list(folder: Path, modules: Sequence[tuple[str, str]]) -> None:
    """Write the modules that sentence-transformers runs in order, each with its kind and its folder."""
    numbered = enumerate(modules)
    rows = [{"idx": i, "name": str(i), "path": path, "type": module_type(kind)} for i, (kind, path) in numbered]
    write_json(folder / MODULES, rows)


def module_type(kind: str) -> str:
    """The class name of a kind of module that every version of sentence-transformers knows."""
    return f"sentence_transformers.models.{kind}"


def _modules(settings: EncoderSettings) -> list[tuple[str, str]]:
    """The kinds of a folder's modules and their folders."""
    modules = [("Transformer", ""), ("Pooling", POOLING)]
    if settings.projection:
        modules.append(("Dense", PROJECTION))
    if settings.normalize:
        modules.append(("Normalize", normalize_path(settings)))
    return modules


def normalize_path(settings: EncoderSettings) -> str:
    """The folder of the module that scales vectors to length 1."""
    return "3_Normalize" if settings.projection else "2_Normalize"


def write_pooling(folder: Path, width: int, settings: EncoderSettings) -> None:
    """Write the module that pools hidden states of a width into one vector."""
    (folder / POOLING).mkdir(exist_ok=True)
    write_json(
        folder / POOLING / "config.json",
        {
            "word_embedding_dimension": width,
            "pooling_mode_cls_token": settings.pooling == "cls",
            "pooling_mode_mean_tokens": settings.pooling == "mean",
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    )


def write_sentence_transformer(folder: Path, settings: EncoderSettings) -> None:
    """Write the files about the whole folder: lengths, similarity, prompts and settings."""
    if settings.normalize:
        # Tools that track files would lose an empty folder.
        (folder / normalize_path(settings)).mkdir(exist_ok=True)
        write_json(folder / normalize_path(settings) / "config.json", {})
    write_json(
        folder / "sentence_bert_config.json", {"max_seq_length": settings.passage_length, "do_lower_case": False}
    )
    similarity = "cosine" if settings.normalize else "dot"
    about: dict[str, object] = {"__version__": {}, "similarity_fn_name": similarity}
    if settings.query_prompt or settings.passage_prompt:
        about["prompts"] = {"query": settings.query_prompt, PASSAGE_PROMPTS[0]: settings.passage_prompt}
    if settings.truncate_dim:
        about["truncate_dim"] = settings.truncate_dim
    write_json(folder / MODEL, about)
    write_json(folder / SETTINGS, asdict(settings))


def normalized(vectors_BD: Tensor) -> Tensor:
    """The vectors scaled to length 1."""
    return torch.nn.functional.normalize(vectors_BD, dim=-1)
