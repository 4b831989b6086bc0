"""The kind of a base model: a retriever, or a bare language model, which has not learned retrieval yet.

This file imports neither PyTorch nor, before it is needed, the hub's library: `stillhouse new --help` is quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.artifacts import Manifest, read_manifest
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.models import encoder_settings
from stillhouse.models.settings import MODULES, NO_MODEL
from stillhouse.models.token_lengths import misfit, token_lengths

if TYPE_CHECKING:
    from stillhouse.corpus.first_look import FirstLook

RETRIEVER, LANGUAGE_MODEL, DECODER, UNKNOWN = "retriever", "language model", "decoder", "unknown"
HUB_SECONDS = 10.0
"""How long to wait for the hub to answer."""
TEXTS_READ = 100
"""The passages that show whether a tokenizer suits them."""
SEARCHES = {"train-retriever", "train-query-encoder", "train-projection", "average", "select-best"}
"""The steps that write retrievers."""


@dataclass(frozen=True)
class Start:
    """What a base model is, why, and its Hugging Face configuration, which is empty for an unknown one.

    `name` is the model as it was given.
    """

    name: str
    kind: str
    why: str
    config: Mapping[str, Any] = field(default_factory=dict)

    def number(self, *names: str) -> int | None:
        """The first of these entries of the configuration that is a positive whole number."""
        values = (self.config.get(name) for name in names)
        return next((value for value in values if isinstance(value, int) and value > 0), None)


def start_of(model: str) -> Start:
    """What the files of a model say about it, or the list of its files on the hub. Fetches no file.

    Raises `InputError` for a folder or package without a model or with one that cannot be opened, and for `none`.
    """
    from stillhouse.models.model_place import base_of, place_of, refuse_unsupported

    if model == NO_MODEL:
        raise InputError("a run needs a base model; give --model a folder, package:NAME or a hub name")
    folder = place_of(model)
    if folder is None:
        return Start(model, *_on_hub(model))
    refuse_unsupported(folder)
    if base := base_of(folder):
        below = start_of(base)
        kind = RETRIEVER if (folder / MODULES).is_file() else below.kind
        return replace(below, name=model, kind=kind, why=f"an adapter of {base}; {below.why}")
    if Path(model).is_dir():  # the hub's cache may lack files that `fetch-model` fetches
        encoder_settings.refuse_foreign_weights(encoder_settings.transformer_in(folder))
    kind, why = _kind(folder)
    return Start(model, kind, why, config_of(folder))


def counted(look: FirstLook, model: str) -> FirstLook:
    """A look whose lengths the tokenizer of a base model counted; the same look if that is not on this machine."""
    folder = _here(model)
    found = token_lengths(look.texts, folder) if folder else None
    return replace(look, lengths=tuple(found), counted=True) if found else look


def unsuited(look: FirstLook, model: str) -> str:
    """The sentence that the tokenizer of a base model does not suit a source; empty if it does, or is not here."""
    folder = _here(model)
    why = misfit(look.texts[:TEXTS_READ], folder) if folder else None
    if why is None:
        return ""
    return (
        f"the tokenizer of {model} does not suit this corpus: {why}; a base model of the corpus's language, or a "
        "multilingual one, such as intfloat/multilingual-e5-small, would work better"
    )


def _here(model: str) -> Path | None:
    """`place_of`, or None for no such folder or package, which `fetch-model` reports."""
    from stillhouse.models.model_place import place_of

    with suppress(InputError):
        return place_of(model)
    return None


@doing("asking the Hugging Face Hub about the base model")
def _on_hub(name: str) -> tuple[str, str]:
    """What a model of the hub is by the list of its files; unknown if the hub does not answer.

    Raises `InputError` for one that cannot be opened.
    """
    from huggingface_hub import HfApi

    from stillhouse.models.model_place import ADAPTER, kind_of, refuse_kind

    try:
        info = HfApi().model_info(name, timeout=HUB_SECONDS)
    except Exception:  # offline, no such model, one that needs a token: `fetch-model` reports it
        return UNKNOWN, "it is not on this machine, and the Hugging Face Hub did not list its files"
    listed = {file.rfilename for file in info.siblings or ()}
    refuse_kind(name, kind_of(info.config or {}))
    if ADAPTER in listed:
        return UNKNOWN, f"on the Hugging Face Hub it has an {ADAPTER} of peft, whose base model is not known before"
    if MODULES in listed:
        return RETRIEVER, f"on the Hugging Face Hub it has a {MODULES} of sentence-transformers"
    if encoder_settings.is_decoder(info.config or {}):
        return DECODER, "its configuration on the Hugging Face Hub says so"
    return LANGUAGE_MODEL, f"on the Hugging Face Hub it has no {MODULES} of sentence-transformers"


def _kind(folder: Path) -> tuple[str, str]:
    from stillhouse.models.model_place import is_bag_of_words

    if is_bag_of_words(folder):
        return RETRIEVER, "it is a bag of words, which has no language-model head"
    with suppress(InputError):  # no manifest, or one of another program
        found = _of_step(read_manifest(folder, verify=False))
        if found:
            return found
    if encoder_settings.is_saved_cross_encoder(folder):
        return LANGUAGE_MODEL, "it is a cross-encoder, whose layers were not trained to produce vectors"
    if (folder / MODULES).is_file():
        return RETRIEVER, f"it has a {MODULES} of sentence-transformers"
    if encoder_settings.is_decoder(config_of(folder)):
        return DECODER, f"its {encoder_settings.CONFIG} says so"
    return LANGUAGE_MODEL, f"it has no {MODULES} of sentence-transformers"


def _of_step(manifest: Manifest) -> tuple[str, str] | None:
    """What a folder is by the step that wrote it. Every encoder of Stillhouse has a `modules.json`, a bare one too.

    None if the step is not one that writes encoders.
    """
    if manifest.step in SEARCHES:
        return RETRIEVER, f"`{manifest.step}` wrote it"
    if manifest.step == "pretrain":
        return LANGUAGE_MODEL, "`pretrain` wrote it, and no training on questions followed"
    if manifest.step != "fetch-model":
        return None
    if manifest.config.get("weights") == "random":
        return LANGUAGE_MODEL, "its weights are random"
    if manifest.facts.get("lm_head") == "trained":
        return LANGUAGE_MODEL, "`fetch-model` wrote it with a language-model head"
    return UNKNOWN, "`fetch-model` wrote it without a language-model head and did not record what it fetched"


def config_of(folder: Path) -> Mapping[str, Any]:
    """The Hugging Face configuration in a model's folder; empty if it cannot be read."""
    from stillhouse.models.model_place import base_of, place_of

    with suppress(InputError, OSError):
        if base := base_of(folder):
            below = place_of(base)
            return config_of(below) if below else {}
        return encoder_settings.object_if_there(encoder_settings.transformer_in(folder) / encoder_settings.CONFIG)
    return {}
