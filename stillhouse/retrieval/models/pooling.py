"""How token states become one vector, and the files that make sentence-transformers do the same.

Shape suffixes: B texts, L tokens, D hidden width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from stillhouse.artifacts import write_json
from stillhouse.config import build, setting
from stillhouse.corpus.titles import TITLES
from stillhouse.errors import InputError
from stillhouse.retrieval.models.model_files import REMEDY, json_object, read_json
from stillhouse.retrieval.models.projection import PROJECTION, write_projection
from stillhouse.retrieval.settings import MODULES, PASSAGE_LENGTH, QUERY_LENGTH

POOLINGS = ("cls", "mean")
LONGEST = 1_000_000
"""The most tokens of a text for any model; a larger number is a mistake."""
SETTINGS = "stillhouse.json"
MODEL = "config_sentence_transformers.json"
POOLING = "1_Pooling"
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
    write_json(folder / MODEL, about)
    write_json(folder / SETTINGS, asdict(settings))


def read_settings(folder: Path) -> EncoderSettings:
    """An encoder folder's settings: from `stillhouse.json`, else its sentence-transformers modules, else [CLS].

    Raises `InputError` for a pooling that Stillhouse does not know, and for malformed files.
    """
    own, listed = folder / SETTINGS, folder / MODULES
    if own.is_file():
        return build(EncoderSettings, json_object(own), str(own))
    if not listed.is_file():
        return EncoderSettings()
    by_kind = _modules_of(listed)
    unknown = by_kind.keys() - {"Transformer", "Pooling", "Normalize"}
    if unknown:
        raise InputError(f"{listed}: modules {', '.join(sorted(unknown))} are not supported; use a plain encoder")
    if "Pooling" not in by_kind:
        raise InputError(f"{listed} lists no Pooling, which turns a text into one vector; {REMEDY}")
    path = folder / by_kind["Pooling"] / "config.json"
    pooling = json_object(path)
    modes = {name.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
             for name, on in pooling.items() if name.startswith("pooling_mode_") and on is True}  # fmt: skip
    mode = pooling.get("pooling_mode") or "+".join(sorted(modes))
    if mode not in POOLINGS:
        raise InputError(f"{path}: pooling {mode!r} is not supported, only {' and '.join(POOLINGS)} are")
    query_prompt, passage_prompt = _prompts(folder / MODEL)
    if (query_prompt or passage_prompt) and pooling.get("include_prompt") is False:
        raise InputError(
            f"{path}: include_prompt false leaves the prompts' tokens out of the vector, which is not supported; use "
            "another model"
        )
    return EncoderSettings(
        pooling=mode, normalize="Normalize" in by_kind, query_prompt=query_prompt, passage_prompt=passage_prompt
    )


def _prompts(path: Path) -> tuple[str, str]:
    """The prompts of queries and of passages in a model's sentence-transformers file, or empty strings."""
    prompts = (json_object(path).get("prompts") if path.is_file() else None) or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise InputError(f"{path}: its prompts are not texts with names; {REMEDY}")
    passage = next((prompts[name] for name in PASSAGE_PROMPTS if prompts.get(name)), None)
    return prompts.get("query") or "", passage or ""


def _modules_of(path: Path) -> dict[str, str]:
    """The folder of each kind of module in a `modules.json`."""
    modules = read_json(path)
    if not isinstance(modules, list) or not all(
        isinstance(module, dict) and isinstance(module.get("type"), str) and isinstance(module.get("path"), str)
        for module in modules
    ):
        raise InputError(f"{path} is not a list of modules, each with a type and a path; {REMEDY}")
    return {module["type"].rsplit(".", 1)[-1]: module["path"] for module in modules}


def normalized(vectors_BD: Tensor) -> Tensor:
    """The vectors scaled to length 1."""
    return torch.nn.functional.normalize(vectors_BD, dim=-1)
