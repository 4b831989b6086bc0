"""Loads and saves masked language models, and checks whether their head was trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerBase

from stillhouse.core.artifacts import MANIFEST, read_manifest
from stillhouse.core.errors import InputError
from stillhouse.models.encoder_folder import refuse_bag_of_words, write_modules
from stillhouse.models.encoder_settings import (
    CONFIG,
    OF_MODULES,
    REMEDY,
    EncoderSettings,
    read_settings,
    transformer_in,
)
from stillhouse.models.model_place import refuse_unsupported
from stillhouse.models.tokenizer_files import load_tokenizer, save_tokenizer
from stillhouse.models.transformer import load_model, refuse_larger_vocabulary
from stillhouse.pretraining.heads import family_of, head_parameters
from stillhouse.pretraining.tokens import vocabulary_digest

TRAIN_HEAD = "run `stillhouse pretrain --objective mlm --trainable head` on it first"


@dataclass(frozen=True)
class MaskedLanguageModel:
    """A loaded model folder. `head_trained` is false if the folder has no head, so that it is now random."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    settings: EncoderSettings
    head_trained: bool

    def save(self, folder: Path) -> None:
        """Write a folder that `AutoModelForMaskedLM`, `AutoModel` and `SentenceTransformer` can load."""
        self.model.save_pretrained(folder)
        save_tokenizer(self.tokenizer, folder)
        write_modules(folder, int(self.model.config.hidden_size), self.settings)


def load_masked_lm(folder: Path, seed: int) -> MaskedLanguageModel:
    """Load the model in float32; missing parts of its head are drawn from `seed`.

    Raises `InputError` for an unsupported model type, a bag of words, or damaged files.
    """
    refuse_bag_of_words(folder)
    refuse_unsupported(folder)
    settings = read_settings(folder)
    if settings.pooling == OF_MODULES:
        raise InputError(
            f"{folder} has layers after its pooling, another pooling, or is a decoder, so it cannot be "
            "pre-trained here; train it on questions, or give the encoder that it was made from"
        )
    torch.manual_seed(seed)
    if not (transformer_in(folder) / CONFIG).is_file():
        raise InputError(f"{folder / CONFIG} is missing: {folder} holds no masked language model; {REMEDY}")
    loaded = load_model(AutoModelForMaskedLM, folder)
    model, tokenizer = loaded.model, load_tokenizer(folder)
    family_of(model)
    refuse_larger_vocabulary(folder, tokenizer, model.get_input_embeddings())
    missing = head_parameters(model).keys() & loaded.absent
    claimed = read_manifest(folder, verify=False).facts.get("lm_head") if (folder / MANIFEST).is_file() else None
    trained = not missing and claimed in (None, "trained")
    # The projection and second tower of pair tasks are not part of a masked language model.
    return MaskedLanguageModel(model, tokenizer, replace(settings, projection=0, towers="shared"), trained)


def require_same_vocabulary(what: str, tokenizer: PreTrainedTokenizerBase, digest: str) -> None:
    """Raises `InputError` for a model whose vocabulary differs from the token cache's."""
    if vocabulary_digest(tokenizer) != digest:
        raise InputError(
            f"the {what} has a different vocabulary from the tokens; run `stillhouse tokenize` with this model, or use "
            f"a {what} with the vocabulary of the tokens"
        )


def require_head(what: str, loaded: MaskedLanguageModel) -> None:
    """Raises `InputError` for an untrained language-model head."""
    if not loaded.head_trained:
        raise InputError(f"the language-model head of the {what} is untrained; {TRAIN_HEAD}")
