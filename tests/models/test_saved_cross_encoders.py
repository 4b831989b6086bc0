"""A saved cross-encoder of sentence-transformers gives its scores: activation function, length and prompt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from families import GROUPED, SMALL, opened, tokenizer
from sentence_transformers import CrossEncoder as Other
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
from torch import nn
from transformers import AutoConfig, Qwen3ForCausalLM

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.models.pair_scores import score_pairs
from stillhouse.models.settings import InferenceConfig
from stillhouse.serving.pair_scores import PairScores

EXACT = InferenceConfig(precision="fp32")
QUERIES = ["which bird sings", "red", ""]
PASSAGES = ["the red bird sings in the tree", "a fish", "two blue fish swims in the green one " * 8]


def saved(model: Path, folder: Path, **settings: Any) -> Path:
    torch.manual_seed(1)
    other = Other(str(model), num_labels=1, device="cpu", **settings)
    with torch.no_grad():
        for parameter in other.model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    other.save_pretrained(str(folder))
    return folder


def scores(model: CrossEncoder, folder: Path) -> np.ndarray:
    queries, passages = np.array(QUERIES, dtype=object), np.array(PASSAGES, dtype=object)
    query_P, row_P = (grid.ravel() for grid in np.meshgrid(np.arange(3), np.arange(3)))
    return score_pairs(model, queries, passages, query_P, row_P, Context(folder, "cpu", quiet=True), "scoring", EXACT)


def expected(folder: Path, **settings: Any) -> np.ndarray:
    other = Other(str(folder), device="cpu")
    return other.predict([(query, passage) for passage in PASSAGES for query in QUERIES], **settings)


SAVED: dict[str, dict[str, Any]] = {
    "the default": {},
    "raw scores": {"activation_fn": nn.Identity()},
    "tanh": {"activation_fn": nn.Tanh()},
    "a length": {"max_length": 16},
    "a prompt": {"prompts": {"search": "blue tree "}, "default_prompt_name": "search"},
    "a prompt that is not the default": {"prompts": {"search": "blue tree "}},
}


@pytest.mark.parametrize("kind", SAVED)
def test_scores_are_those_of_sentence_transformers(tiny_model: Path, tmp_path: Path, kind: str) -> None:
    folder = saved(tiny_model, tmp_path / "saved", **SAVED[kind])
    wanted = expected(folder)
    assert np.ptp(wanted) > 0.1
    np.testing.assert_allclose(scores(CrossEncoder.load(folder), tmp_path), wanted, atol=1e-5)
    (tmp_path / "raw").mkdir()
    raw = expected(folder, activation_fn=nn.Identity())
    np.testing.assert_allclose(scores(CrossEncoder.load(folder, raw=True), tmp_path / "raw"), raw, atol=1e-5)
    served, _ = PairScores(folder, Context(tmp_path, "cpu", quiet=True))(QUERIES[0], PASSAGES)
    np.testing.assert_allclose(served, raw[::3], atol=1e-5)  # `/rerank` makes scores between 0 and 1 of these


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
        {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid", "version": "4.1.0"}},
        {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
    ],
)
def test_scores_of_folders_before_5_4(tiny_model: Path, tmp_path: Path, entry: dict[str, object]) -> None:
    """These have no `modules.json`; `config.json` names the activation function, or nothing does."""
    folder = saved(tiny_model, tmp_path / "saved")
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        (folder / name).unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | entry))
    np.testing.assert_allclose(scores(CrossEncoder.load(folder), tmp_path), expected(folder), atol=1e-5)


def test_a_saved_length_may_exceed_the_usual_one(tiny_modernbert: Path, tmp_path: Path) -> None:
    """Of a folder that does not say how long pairs may be, no more than 512 tokens are read."""
    folder = saved(tiny_modernbert, tmp_path / "saved", max_length=600)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1024}))
    assert CrossEncoder.load(folder).max_length == Other(str(folder), device="cpu").max_seq_length == 600


def test_its_layers_are_a_base_model(
    tiny_model: Path, small_corpus: Path, tmp_path: Path, run_step: Callable[..., dict[str, Path]]
) -> None:
    from transformers import AutoModel

    folder = saved(tiny_model, tmp_path / "saved")
    encoder = run_step("fetch-model", {}, model=str(folder), query_length=16, passage_length=24)["encoder"]
    found, own = (AutoModel.from_pretrained(place).state_dict() for place in (encoder, folder))
    assert all(torch.equal(found[name], own[name]) for name in own if "pooler" not in name)


@pytest.mark.parametrize(
    "name", ["my_code.Activation", "torch.nn.Nothing", "torch.nn.Linear", "torch.nn.functional.gelu"]
)
def test_an_activation_function_from_elsewhere_is_refused(tiny_model: Path, tmp_path: Path, name: str) -> None:
    folder = saved(tiny_model, tmp_path / "saved")
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"activation_fn": name}))
    with pytest.raises(InputError):
        CrossEncoder.load(folder)


def yes_or_no(folder: Path) -> Path:
    """A decoder whose chat template asks for a judgement, and the difference of the logits of two answers."""
    torch.manual_seed(2)
    model = Qwen3ForCausalLM(AutoConfig.for_model("qwen3", **(SMALL | GROUPED)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    tokens = tokenizer(after="</s>")
    tokens.backend_tokenizer.post_processor = None
    tokens.chat_template = (
        "<s> {% for message in messages %}{{ message['role'] }} : {{ message['content'] }} </s> {% endfor %}"
    )
    tokens.save_pretrained(folder)
    first = Transformer(str(folder), transformer_task="text-generation", model_kwargs={"dtype": "float32"})
    other = Other(modules=[first, LogitScore(8, 9)], device="cpu", activation_fn=nn.Identity())
    other.save_pretrained(str(folder / "saved"))
    return folder / "saved"


def with_layers(folder: Path) -> Path:
    first = opened("bert", folder)
    head = Dense(32, 1, activation_function=nn.Identity(), module_output_name="scores")
    Other(modules=[first, Pooling(32, "mean"), head], device="cpu").save_pretrained(str(folder / "saved"))
    return folder / "saved"


@pytest.mark.parametrize("make", [yes_or_no, with_layers])
def test_a_cross_encoder_of_several_modules_gives_its_scores(make: Callable[[Path], Path], tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    folder = make(tmp_path / "model")
    wanted = expected(folder)
    assert np.ptp(wanted) > 0.01
    np.testing.assert_allclose(scores(CrossEncoder.load(folder), tmp_path), wanted, atol=1e-5)
    raw = expected(folder, activation_fn=nn.Identity())
    served, _ = PairScores(folder, Context(tmp_path, "cpu", quiet=True))(QUERIES[0], PASSAGES)
    np.testing.assert_allclose(served, raw[::3], atol=1e-5)
