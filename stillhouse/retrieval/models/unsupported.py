"""Names a model that cannot be a base model, from its small files alone, before anything is loaded or runs.

`stillhouse new` and `fetch-model` give the same sentence. This file does not import PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from stillhouse.errors import InputError
from stillhouse.retrieval.models.encoder_settings import SETTINGS, read_settings
from stillhouse.retrieval.models.saved_files import (
    CONFIG,
    TRANSFORMER,
    is_saved_cross_encoder,
    modules_of,
    object_if_there,
    saved_model,
    transformer_in,
)

ADAPTER = "adapter_config.json"
INSTEAD = "give an encoder, such as a BERT, an XLM-RoBERTa or a ModernBERT, or a retriever made from one"
ENCODER_DECODERS = re.compile(r"(m|um|long)?t5|switch_transformers|bart|mbart|pegasus|marian|m2m_100")
DECODERS = re.compile(
    r".*gpt|llama|mi(ni)?stral|mixtral|qwen|gemma|phi|opt|bloom|falcon|smollm|olmo|granite|cohere|deepseek|glm"
    r"|stablelm|starcoder|mpt|codegen|mamba|nemotron|lfm|exaone|internlm|minicpm|hunyuan|ernie4|xglm|xlnet"
)
HEADS = ("ForCausalLM", "LMHeadModel")
"""How the classes of decoders end; XLM and FlauBERT, which are encoders, have a `WithLMHeadModel`."""
IMAGES = re.compile(r".*clip|.*siglip|align|blip|.*vit|.*bridgetower|colpali|.*_vl")
"""The model types of transformers begin with these."""
MODULES = {
    "StaticEmbedding": "a static embedding model, which has a vector for each token and no Transformer",
    "SparseStaticEmbedding": "a sparse encoder",
    "SpladePooling": "a sparse encoder (SPLADE)",
    "MLMTransformer": "a sparse encoder (SPLADE)",
    "SparseAutoEncoder": "a sparse encoder",
    "MultiVectorMask": "a multi-vector model (ColBERT)",
    "ColBERT": "a multi-vector model (ColBERT)",
    "CLIPModel": "a model of images and texts (CLIP)",
    "Router": "a Router, with modules of its own for queries and for documents",
    "Asym": "a Router, with modules of its own for queries and for documents",
    "LogitScore": "a decoder that scores pairs by the next token",
    "WordEmbeddings": "a model of word vectors without a Transformer",
    "BoW": "a bag of words without a Transformer",
}
"""What a model with a module of sentence-transformers is."""
KINDS = {"SparseEncoder": MODULES["SparseStaticEmbedding"], "MultiVectorEncoder": MODULES["ColBERT"]}
KINDS |= {"ColBERT": MODULES["ColBERT"]}
"""What a model is that its `config_sentence_transformers.json` gives another kind."""


def refuse_unsupported(folder: Path, **prompts: str | None) -> None:
    """Raises `InputError` for a folder whose files say that it is no encoder that Stillhouse opens.

    `prompts` are those that a step was given, as in `read_settings`.
    """
    if (folder / SETTINGS).is_file():
        return
    refuse_adapter(folder)
    config = object_if_there(transformer_in(folder) / CONFIG)
    modules = [module.kind for module in modules_of(folder)]
    said = (MODULES.get(kind) for kind in modules)
    found = next(filter(None, said), None) or KINDS.get(str(saved_model(folder).get("model_type"))) or kind_of(config)
    if found:
        raise InputError(unsupported(str(folder), found))
    if is_saved_cross_encoder(folder):
        refuse_unsupported_scorer(folder)
    read_settings(folder, **prompts)


def refuse_unsupported_scorer(folder: Path) -> None:
    """Raises `InputError` for a cross-encoder of sentence-transformers that is more than one Transformer."""
    modules = [module.kind for module in modules_of(folder)]
    if modules not in ([], [TRANSFORMER]):
        what = MODULES.get(modules[-1], f"a cross-encoder of the modules {', '.join(modules)}")
        raise InputError(
            f"{folder} is {what}, which cannot be opened yet; give a cross-encoder that is one Transformer with a score"
        )


def refuse_adapter(folder: Path) -> None:
    """Raises `InputError` for a LoRA adapter."""
    if (folder / ADAPTER).is_file():
        base = object_if_there(folder / ADAPTER).get("base_model_name_or_path")
        raise InputError(adapter(str(folder), f" of {base}" if isinstance(base, str) and base else ""))


def refuse_unsupported_on_hub(name: str, files: Container[str], config: Mapping[str, Any]) -> None:
    """As `refuse_unsupported`, from the list of files and the configuration that the hub shows of a model."""
    if ADAPTER in files:
        raise InputError(adapter(name))
    if found := kind_of(config):
        raise InputError(unsupported(name, found))


def kind_of(config: Mapping[str, Any]) -> str | None:
    """What the configuration of a model says that it is, if that is no encoder of texts."""
    kind, classes = str(config.get("model_type", "")), config.get("architectures")
    heads = [str(name) for name in classes] if isinstance(classes, list) else []
    if kind == "model2vec" or "StaticModel" in heads:
        return MODULES["StaticEmbedding"]
    if config.get("is_encoder_decoder") is True or ENCODER_DECODERS.match(kind):
        return f"an encoder-decoder ({kind})"
    if IMAGES.match(kind):
        return f"a model of images ({kind})"
    generates = any(name.endswith(HEADS) and not name.endswith("WithLMHeadModel") for name in heads)
    if generates or config.get("is_decoder") is True or kind.endswith("decoder") or DECODERS.match(kind):
        return f"a decoder ({kind})"
    return None


def unsupported(name: str, what: str) -> str:
    return f"{name} is {what}, which cannot be opened yet; {INSTEAD}"


def adapter(name: str, base: str = "") -> str:
    return (
        f"{name} is a LoRA adapter{base}, not a whole model; merge it into its base model with `merge_and_unload` of "
        "peft, save that with `save_pretrained`, and give the new folder"
    )
