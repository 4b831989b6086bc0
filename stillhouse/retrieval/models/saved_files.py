"""Reads the small files of a model folder as sentence-transformers saves them. This file does not import PyTorch.

| file | what it says |
|---|---|
| `modules.json` | the modules, in the order they run, and their folders |
| `config_sentence_transformers.json` | what kind of model it is, its prompts, how many dimensions to keep |
| `sentence_bert_config.json` | how its Transformer reads a text |
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.errors import InputError
from stillhouse.retrieval.settings import MODULES

if TYPE_CHECKING:
    from tokenizers import Tokenizer

REMEDY = "copy the model folder again, or give one that `stillhouse fetch-model` wrote"
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
"""For large models with several weight files: the file of each tensor."""
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt", "model.pth", "model.pkl")
MODEL = "config_sentence_transformers.json"
TRANSFORMER = "Transformer"
READING = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
"""The file of a Transformer is `sentence_bert_config.json`; versions before 0.4 named it after the architecture."""


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises `InputError` if it is missing or not JSON."""
    if not path.is_file():
        raise InputError(f"{path} is missing; {REMEDY}")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON; {REMEDY}") from None


def json_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that holds an object. Raises `InputError` for any other file."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a JSON object; {REMEDY}")
    return content


def object_if_there(path: Path) -> dict[str, Any]:
    """As `json_object`; empty if there is no such file."""
    return json_object(path) if path.is_file() else {}


@dataclass(frozen=True)
class Module:
    """A module of sentence-transformers: the name of its class, and its folder within the model's."""

    kind: str
    path: str


def modules_of(folder: Path) -> list[Module]:
    """The modules that `modules.json` lists; none if the folder has no such file."""
    path = folder / MODULES
    listed = read_json(path) if path.is_file() else []
    if not isinstance(listed, list) or not all(
        isinstance(module, dict) and isinstance(module.get("type"), str) and isinstance(module.get("path"), str)
        for module in listed
    ):
        raise InputError(f"{path} is not a list of modules, each with a type and a path; {REMEDY}")
    return [Module(module["type"].rsplit(".", 1)[-1], module["path"]) for module in listed]


def transformer_in(folder: Path) -> Path:
    """The folder of the Hugging Face files: `0_Transformer` of an early sentence-transformers, else `folder` itself."""
    if (folder / CONFIG).is_file():
        return folder
    return next((folder / module.path for module in modules_of(folder) if module.kind == TRANSFORMER), folder)


def refuse_pickle(folder: Path) -> None:
    """Raises `InputError` for a folder of Hugging Face files whose weights are a pickle alone."""
    if not (folder / WEIGHTS).is_file() and not (folder / INDEX).is_file():
        for name in PICKLES:
            if (folder / name).is_file():
                raise InputError(
                    f"{folder / name} is a pickle, which can run code when it is loaded; save the model as {WEIGHTS} "
                    "with `save_pretrained` of transformers"
                )


def saved_model(folder: Path) -> dict[str, Any]:
    """What sentence-transformers says about the whole model; empty if it says nothing."""
    return object_if_there(folder / MODEL)


def is_saved_cross_encoder(folder: Path) -> bool:
    """Whether the `CrossEncoder` of sentence-transformers 5.4 or later saved a folder."""
    return saved_model(folder).get("model_type") == "CrossEncoder"


def lower_cased(tokenizer: Tokenizer, folder: Path) -> None:
    """Make a tokenizer lower-case its texts if its Transformer's `do_lower_case` says so, as sentence-transformers."""
    from tokenizers import normalizers

    files = (transformer_in(folder) / f"sentence_{name}_config.json" for name in READING)
    said: dict[str, Any] = next((found for found in map(object_if_there, files) if found), {})
    own: Any = tokenizer.normalizer
    several = isinstance(own, normalizers.Sequence)
    steps = list(own) if several else [own] if own is not None else []
    if said.get("do_lower_case") is True and not any(isinstance(step, normalizers.Lowercase) for step in steps):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *steps])
