"""A folder that peft wrote is a model: the vectors of sentence-transformers and peft, opened, fetched and saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from families import embedding_gemma, hugging_face_folder, opened, saved
from peft import LoraConfig, get_peft_model
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.model_place import content_of
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.source import fetch
from stillhouse.pipeline.start_model import RETRIEVER, start_of

TEXTS = ["why do ships carry accurate clocks", "mice", "who hears the mice at sea ?"]


def changed(model: Any) -> Any:
    """The model with a random change of rank 2 in every linear layer, and in a wrapper of peft."""
    return get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))


def assert_vectors(folder: Path, expected_ND: np.ndarray, work: Path) -> None:
    fetch(str(folder), None, None, 90, 90, work / "fetched")
    shown = SentenceTransformer(str(work / "fetched"), device="cpu", local_files_only=True).encode(TEXTS)
    np.testing.assert_allclose(shown, expected_ND, atol=1e-5, rtol=0)
    for place in (folder, work / "fetched"):
        own = BiEncoder.load(place)
        found_ND = encode(
            own, own.passages(TEXTS), Context(work, quiet=True), "texts", InferenceConfig(precision="fp32")
        )
        np.testing.assert_allclose(found_ND, expected_ND, atol=1e-5, rtol=0)


def decoder(first: nn.Module) -> list[nn.Module]:
    return [first, Pooling(32, "lasttoken"), Normalize()]


@pytest.mark.parametrize(("kind", "chain"), [("qwen3", decoder), ("bert", embedding_gemma)])
def test_an_adapter_of_sentence_transformers(kind: str, chain: Callable[..., list[nn.Module]], tmp_path: Path) -> None:
    base = saved(chain(opened(kind, tmp_path / "model")), tmp_path / "base")
    peer = SentenceTransformer(str(base), device="cpu", model_kwargs={"dtype": "float32"})
    before_ND = peer.encode(TEXTS)
    peer.add_adapter(LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    peer.save(str(tmp_path / "adapter"), create_model_card=False)
    again = SentenceTransformer(str(tmp_path / "adapter"), device="cpu", local_files_only=True)
    assert np.abs(again.encode(TEXTS) - before_ND).max() > 0.01
    assert_vectors(tmp_path / "adapter", again.encode(TEXTS), tmp_path)
    start = start_of(str(tmp_path / "adapter"))
    assert start.kind == RETRIEVER and start.config["hidden_size"] == 32


@pytest.mark.parametrize("chain", [decoder, embedding_gemma])
def test_an_adapter_alone_keeps_the_modules_of_its_base(chain: Callable[..., list[nn.Module]], tmp_path: Path) -> None:
    first = opened("qwen3", tmp_path / "model")
    base = saved(chain(first), tmp_path / "base")
    peer = SentenceTransformer(str(base), device="cpu", model_kwargs={"dtype": "float32"})
    wrapped = changed(peer[0].model)
    wrapped.peft_config["default"].base_model_name_or_path = str(base)
    wrapped.save_pretrained(tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "modules.json").exists()
    assert_vectors(tmp_path / "adapter", peer.encode(TEXTS), tmp_path)


@pytest.mark.parametrize(("kind", "head"), [("llama", AutoModelForCausalLM), ("bert", AutoModelForMaskedLM)])
def test_an_adapter_that_was_trained_with_a_language_model_head(kind: str, head: Any, tmp_path: Path) -> None:
    base = hugging_face_folder(kind, tmp_path / "base")
    wrapped = changed(head.from_pretrained(base, dtype=torch.float32))
    wrapped.save_pretrained(tmp_path / "adapter")
    own = BiEncoder.load(tmp_path / "adapter")
    ids = own.passages(TEXTS[:1]).batch(np.array([0]), torch.device("cpu"))[0]
    with torch.inference_mode():
        states_BLD = wrapped.eval()(ids, output_hidden_states=True).hidden_states[-1]
    found_BD = own.eval()(ids, torch.ones_like(ids), "passage")
    expected_BD = states_BLD[:, -1] if kind == "llama" else nn.functional.normalize(states_BLD[:, 0])
    torch.testing.assert_close(found_BD, expected_BD, atol=1e-5, rtol=0)


def test_an_adapter_of_another_model_is_refused_and_its_base_is_part_of_its_content(tmp_path: Path) -> None:
    bases = {kind: hugging_face_folder(kind, tmp_path / kind) for kind in ("llama", "bert")}
    changed(AutoModelForCausalLM.from_pretrained(bases["llama"])).save_pretrained(tmp_path / "adapter")
    content = content_of(str(tmp_path / "adapter"))
    assert {"adapter_model.safetensors", "base/model.safetensors"} <= content.keys()
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": str(bases["bert"])}))
    with pytest.raises(InputError, match="adapter"):
        BiEncoder.load(tmp_path / "adapter")
