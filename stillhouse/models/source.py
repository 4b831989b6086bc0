"""The model that training starts from: located, cut, checked and written as a folder."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoModel, AutoModelForMaskedLM

from stillhouse.core.artifacts import MANIFEST, read_manifest
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.encoder_folder import write_modules
from stillhouse.models.encoder_settings import OF_MODULES, OWN_POOLING, EncoderSettings, read_settings
from stillhouse.models.model_place import downloaded, is_bag_of_words, locate, refuse_unsupported
from stillhouse.models.settings import NO_MODEL
from stillhouse.models.tokenizer_files import load_tokenizer, refuse_long_prompts, save_tokenizer
from stillhouse.models.towers import ModuleTower, TransformerTower
from stillhouse.models.transformer import (
    keep_layers,
    load_model,
    random_model,
    read_config,
    refuse_larger_vocabulary,
    refuse_longer,
    whole_model,
)


def model_or(folder: Path, otherwise: Path | None, what: str) -> Path:
    """`folder`, or `otherwise` if `fetch-model` was set to no model.

    Raises `InputError` if there is neither.
    """
    manifest = read_manifest(folder, verify=False) if (folder / MANIFEST).is_file() else None
    if manifest is None or manifest.facts.get("model") != NO_MODEL:
        return folder
    if otherwise is None:
        raise InputError(f"{folder} has no model for the {what}; run `stillhouse fetch-model` with one")
    return otherwise


@doing("fetching the model")
def fetch(
    name: str,
    layers: int | None,
    pooling: str | None,
    query_length: int,
    passage_length: int,
    folder: Path,
    *,
    query_prompt: str | None = None,
    passage_prompt: str | None = None,
    random_from: int | None = None,
) -> dict[str, object]:
    """Write the base model into `folder` and return facts about it.

    Pooling and prompts default to the model's own. With `layers`, only this many of the first Transformer layers are
    kept. A language-model head is kept if the source has one (fact `lm_head` "trained"); otherwise the encoder is
    written alone ("absent"). Two towers and bags of words (bow_mlp) are written whole. With the seed `random_from`, the
    source supplies only its configuration and tokenizer, and the parameters of an encoder without a head are drawn from
    the seed. Raises `InputError` if the source cannot be read, and for settings that do not apply to it.
    """
    source = locate(name)
    place = Path(source) if Path(source).is_dir() else downloaded(source, weights=random_from is None)
    if is_bag_of_words(place) and not Path(source).is_dir():
        place = downloaded(source)  # a bag's width is only in its weights
    prompts = {"query_prompt": query_prompt, "passage_prompt": passage_prompt}
    with whole_model(place) as place:
        bag = is_bag_of_words(place)
        refuse_unsupported(place, **prompts)
        settings = replace(read_settings(place, **prompts), query_length=query_length, passage_length=passage_length)
        if random_from is not None and not bag:
            _refuse_more_than_a_transformer(name, settings)
        if bag or settings.towers == "separate" or settings.pooling == OF_MODULES:
            if layers or pooling:
                what = "modules of its own" if settings.pooling == OF_MODULES else "two towers"
                what = "a bag of words (bow_mlp)" if bag else what
                raise InputError(f"{name} has {what}, which are used as a whole; leave out layers and pooling")
            return _fetch_whole(place, settings, folder, random_from)
        config = read_config(place)
        vars(config).pop(OWN_POOLING, None)  # a re-ranker's encoder is an encoder like any other from here on
        if layers and layers > config.num_hidden_layers:
            raise InputError(f"{name} has {config.num_hidden_layers} layers, so {layers} cannot be kept")
        keep_layers(config, layers or config.num_hidden_layers)
        if random_from is None:
            loaded = load_model(AutoModelForMaskedLM, place, config)
            headless = loaded.new_head
            model = load_model(AutoModel, place, config).model if headless else loaded.model
        else:
            headless, model = True, random_model(place, config, random_from)
        tokenizer = load_tokenizer(place)
        refuse_larger_vocabulary(place, tokenizer, model.get_input_embeddings())
        refuse_longer(model, name, query_length=query_length, passage_length=passage_length)
        refuse_long_prompts(tokenizer, settings)
        if pooling is not None:
            settings = replace(settings, pooling=pooling)
        model.save_pretrained(folder)
        save_tokenizer(tokenizer, folder)
        write_modules(folder, int(config.hidden_size), settings)
        return _facts(model, config, int(config.hidden_size), settings) | ({} if headless else {"lm_head": "trained"})


def _refuse_more_than_a_transformer(name: str, settings: EncoderSettings) -> None:
    """Raises `InputError` for a model with towers or a projection, which random initialisation would leave out."""
    if settings.towers == "separate" or settings.projection or settings.pooling == OF_MODULES:
        extra = "two towers" if settings.towers == "separate" else "a layer on the pooled vector"
        raise InputError(
            f"{name} has {extra}, but random initialisation needs a single plain Transformer; name the model that it "
            "was trained from"
        )


def _fetch_whole(
    source: Path, settings: EncoderSettings, folder: Path, random_from: int | None = None
) -> dict[str, object]:
    """Write an encoder's towers unchanged; with a seed, redraw those of a bag of words."""
    changed = ("query_length", "passage_length", "query_prompt", "passage_prompt")
    encoder = BiEncoder.load(source, **{name: getattr(settings, name) for name in changed})
    if random_from is not None:
        encoder.draw_bags(random_from)
    refuse_long_prompts(encoder.tokenizer, settings)
    encoder.save(folder)
    passage = encoder.tower("passage")
    inner = passage.encoder if isinstance(passage, TransformerTower | ModuleTower) else None
    config, width = (None, encoder.width) if inner is None else (inner.config, int(inner.config.hidden_size))
    return _facts(encoder, config, width, encoder.settings)


def _facts(model: nn.Module, config: Any, width: int, settings: EncoderSettings) -> dict[str, object]:
    """What the step says about an encoder without a head; `config` is its Transformer's, None for a bag of words."""
    sizes = {} if config is None else {"layers": int(config.num_hidden_layers), "pooling": settings.pooling}
    prompts = {name: getattr(settings, name) for name in ("query_prompt", "passage_prompt")}
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"lm_head": "absent", "width": width, "parameters": parameters, **sizes, **prompts}
