"""How an encoder folder turns a text into a vector, and what its files say about that.

This file does not import PyTorch: `stillhouse new` reads the settings of a base model before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stillhouse.config import build, setting
from stillhouse.corpus.titles import TITLES
from stillhouse.errors import InputError
from stillhouse.retrieval.models.saved_files import (
    MODEL,
    REMEDY,
    TRANSFORMER,
    is_saved_cross_encoder,
    json_object,
    modules_of,
    saved_model,
)
from stillhouse.retrieval.settings import MODULES, PASSAGE_LENGTH, QUERY_LENGTH

SETTINGS = "stillhouse.json"
POOLINGS = ("cls", "mean")
LONGEST = 1_000_000
"""The most tokens of a text for any model; a larger number is a mistake."""
QUERY_PROMPT = "query"
PASSAGE_PROMPTS = ("document", "passage", "corpus")
"""The names that sentence-transformers gives a passage prompt; the first that a model has counts."""


@dataclass(frozen=True)
class EncoderSettings:
    """How an encoder folder turns a text into a vector, in addition to the Hugging Face files.

    `projection` is the width of the linear layer on the pooled vector; 0 = no layer. `towers` is "shared", or
    "separate" if queries have an encoder of their own. `titles` says how passages were read in the last training; it
    changes no vector. A prompt is put before every text of its role, with its spaces, and counts towards the length.
    """

    pooling: str = setting("cls", "how token states become a vector", choices=POOLINGS)
    normalize: bool = setting(True, "vectors have length 1")
    query_length: int = setting(QUERY_LENGTH, "tokens of a query", minimum=3, maximum=LONGEST)
    passage_length: int = setting(PASSAGE_LENGTH, "tokens of a passage", minimum=3, maximum=LONGEST)
    projection: int = setting(0, "width of the layer on the pooled vector", minimum=0)
    towers: str = setting("shared", "whether queries have an encoder of their own", choices=("shared", "separate"))
    query_prompt: str = setting("", "text put before every query")
    passage_prompt: str = setting("", "text put before every passage")
    titles: str = setting(
        "",
        "what joined title and text of passages in its last training, as in `titles` of ingest; empty = unknown",
        choices=("", *TITLES),
    )
    truncate_dim: int | None = setting(None, "keep this many of a vector's first dimensions; null = all", minimum=1)


def read_settings(folder: Path, **prompts: str | None) -> EncoderSettings:
    """An encoder folder's settings: from `stillhouse.json`, else its sentence-transformers modules, else [CLS].

    `prompts` gives `query_prompt` and `passage_prompt`; null = the model's own. Raises `InputError` for modules and a
    pooling that Stillhouse does not have, for prompts of which it is not said what they are for, and for malformed
    files.
    """
    given: dict[str, Any] = {name: text for name, text in prompts.items() if text is not None}
    if (folder / SETTINGS).is_file():
        return replace(build(EncoderSettings, json_object(folder / SETTINGS), str(folder / SETTINGS)), **given)
    if not (folder / MODULES).is_file() or is_saved_cross_encoder(folder):
        return EncoderSettings(**given)
    by_kind = {module.kind: module.path for module in modules_of(folder)}
    unknown = by_kind.keys() - {TRANSFORMER, "Pooling", "Normalize"}
    if unknown:
        raise InputError(
            f"{folder / MODULES}: modules {', '.join(sorted(unknown))} are not supported; use a plain encoder"
        )
    if "Pooling" not in by_kind:
        raise InputError(f"{folder / MODULES} lists no Pooling, which turns a text into one vector; {REMEDY}")
    path = folder / by_kind["Pooling"] / "config.json"
    pooling = json_object(path)
    modes = {name.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
             for name, on in pooling.items() if name.startswith("pooling_mode_") and on is True}  # fmt: skip
    mode = pooling.get("pooling_mode") or "+".join(sorted(modes))
    if mode not in POOLINGS:
        raise InputError(
            f"{path}: pooling {mode!r} is not supported, only {' and '.join(POOLINGS)} are; use another base model"
        )
    said = saved_model(folder)
    settings = EncoderSettings(
        pooling=mode,
        normalize="Normalize" in by_kind,
        truncate_dim=_truncate_dim(folder / MODEL, said),
        **_prompts(folder / MODEL, said, given),
    )
    if (settings.query_prompt or settings.passage_prompt) and pooling.get("include_prompt") is False:
        raise InputError(
            f"{path}: include_prompt false leaves the prompts' tokens out of the vector, which is not supported; use "
            "another model"
        )
    return settings


def _truncate_dim(path: Path, said: Mapping[str, Any]) -> int | None:
    """How many dimensions of a vector a model keeps; None = all."""
    found = said.get("truncate_dim")
    if found is not None and (type(found) is not int or found < 1):
        raise InputError(f"{path}: truncate_dim {found!r} is no number of dimensions; {REMEDY}")
    return found


def _prompts(path: Path, said: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The prompts of queries and passages that are `given`, else those of `encode_query` and `encode_document`.

    Other prompts are for other tasks. A model that has only such prompts does not say which one a search needs.
    """
    prompts = said.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise InputError(f"{path}: its prompts are not texts with names; {REMEDY}")
    passage = next((prompts[name] for name in PASSAGE_PROMPTS if prompts.get(name)), None)
    found = {"query_prompt": prompts.get(QUERY_PROMPT) or "", "passage_prompt": passage or ""} | given
    others = [name for name, text in prompts.items() if text and name not in (QUERY_PROMPT, *PASSAGE_PROMPTS)]
    if others and not any(found.values()) and len(given) < len(found):
        raise InputError(
            f"{path} has the prompts {', '.join(others)}, but none for queries or passages; give query_prompt and "
            "passage_prompt to `stillhouse fetch-model` and start from the folder that it writes"
        )
    return found
