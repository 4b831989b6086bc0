"""A model that cannot be a base model is named by `new`, before anything is written, and likewise by `fetch-model`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BartConfig, BartModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_MASKED_LM_MAPPING_NAMES

from stillhouse.cli import main
from stillhouse.core.errors import InputError
from stillhouse.models.encoder_settings import is_decoder
from stillhouse.models.model_place import kind_of
from stillhouse.pipeline.start_model import start_of

Make = Callable[[Path, Path], object]
SMALL: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


def saved(*modules: Callable[[Path], torch.nn.Module]) -> Make:
    def make(folder: Path, tiny: Path) -> None:
        SentenceTransformer(modules=[module(tiny) for module in modules], device="cpu").save_pretrained(str(folder))

    return make


def transformer(tiny: Path) -> Transformer:
    return Transformer(str(tiny))


def pooling(mode: str) -> Callable[[Path], Pooling]:
    return lambda tiny: Pooling(32, mode)


def bart(folder: Path, tiny: Path) -> None:
    config = BartConfig(vocab_size=40, d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32)
    BartModel(config).save_pretrained(folder)


def lora(folder: Path, tiny: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")


def as_retriever(model: Make) -> Make:
    """The model with the files that sentence-transformers adds: mean pooling."""

    def make(folder: Path, tiny: Path) -> None:
        saved(transformer, pooling("mean"))(folder, tiny)
        (folder / "config.json").unlink()
        model(folder, tiny)

    return make


def only(**files: object) -> Make:
    """A folder with these JSON files alone."""

    def make(folder: Path, tiny: Path) -> None:
        folder.mkdir()
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content))

    return make


def with_modules(kind: str, *modules: str) -> Make:
    """The tiny model with a list of modules and a kind of model of sentence-transformers."""

    def make(folder: Path, tiny: Path) -> None:
        saved(transformer, pooling("mean"))(folder, tiny)
        numbered = enumerate(modules)
        rows = [{"type": f"sentence_transformers.{name}", "path": f"{i}_{name}" if i else ""} for i, name in numbered]
        (folder / "modules.json").write_text(json.dumps(rows))
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"model_type": kind}))

    return make


def pickled(folder: Path, tiny: Path) -> None:
    only(config={"model_type": "bert"})(folder, tiny)
    torch.save({}, folder / "pytorch_model.bin")


def gguf(folder: Path, tiny: Path) -> None:
    folder.write_bytes(b"GGUF")


CLIP = [{"type": "sentence_transformers.models.CLIPModel", "path": ""}]
BAD: dict[str, tuple[Make, str]] = {
    "BART": (bart, "encoder-decoder (bart)"),
    "a retriever of BART": (as_retriever(bart), "encoder-decoder (bart)"),
    "LoRA": (only(adapter_config={"base_model_name_or_path": "./nowhere"}), "./nowhere does not exist"),
    "LoRA of a retriever": (as_retriever(lora), "does not name its base model"),
    "CLIP": (only(modules=CLIP), "CLIP"),
    "a model of images": (only(config={"model_type": "siglip"}), "images (siglip)"),
    "SPLADE": (with_modules("SparseEncoder", "MLMTransformer", "SpladePooling"), "sparse encoder"),
    "ColBERT": (with_modules("ColBERT", "Transformer", "Dense"), "multi-vector model"),
    "ColBERT since 6": (with_modules("MultiVectorEncoder", "Transformer", "Dense"), "multi-vector model"),
    "a decoder that scores": (with_modules("CrossEncoder", "Transformer", "LogitScore"), "scores pairs"),
    "a long cross-encoder": (with_modules("CrossEncoder", "Transformer", "Pooling", "Dense"), "cross-encoder of"),
    "a pickle": (pickled, "pickle"),
    "nothing": (only(), "has no config.json"),
    "a file": (gguf, "is a file"),
}


@pytest.mark.parametrize("kind", BAD)
def test_new_and_fetch_model_name_what_it_is(
    kind: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make, named = BAD[kind]
    make(tmp_path / "model", tiny_model)
    said = []
    for words in (["new", "work", "--source", "sample"], ["fetch-model", "--encoder", "work"]):
        capsys.readouterr()
        assert main([*words, "--model", "model"]) == InputError.exit_code
        shown = capsys.readouterr()
        said.append(shown.err.splitlines()[-1])
        assert named in said[-1] and "copy the model folder again" not in said[-1] and "takes about" not in shown.out
        assert not Path("work").exists()
    assert said[0].split("error: ")[-1] == said[1].split("error: ")[-1]


def test_every_encoder_and_decoder_of_transformers_is_known() -> None:
    """All model types with a masked language model are encoders, except BART and its kin. All other types with a causal
    language model are decoders.
    """
    masked, causal = MODEL_FOR_MASKED_LM_MAPPING_NAMES, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    encoders = {kind: kind_of({"model_type": kind, "architectures": [name]}) for kind, name in masked.items()}
    assert {kind for kind, found in encoders.items() if found} <= {"bart", "mbart", "mvp"}
    assert not any(is_decoder({"model_type": kind, "architectures": [name]}) for kind, name in masked.items())
    decoders = {kind: name for kind, name in causal.items() if kind not in masked and not kind_of({"model_type": kind})}
    unseen = {kind for kind, name in decoders.items() if not is_decoder({"model_type": kind, "architectures": [name]})}
    assert len(unseen) <= 3 and len(decoders) > 50


@pytest.mark.parametrize(
    ("config", "kind"), [({"model_type": "qwen3"}, "decoder"), ({"model_type": "bert"}, "language model")]
)
def test_a_decoder_without_modules_is_not_pre_trained(config: dict[str, str], kind: str, tmp_path: Path) -> None:
    only(config=config)(tmp_path / "model", tmp_path)
    assert start_of(str(tmp_path / "model")).kind == kind
