"""Step `pretrain` on a tiny corpus: its outputs, its refusals, and that a killed run ends with the same result."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from passage_corpora import losses_of, pretrained, tokenized, write_passages
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from stillhouse.core.artifacts import digest_files, read_manifest, write_manifest
from stillhouse.core.config import build
from stillhouse.core.errors import InputError
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.fetch_model import STEP as FETCH
from stillhouse.pipeline.steps.importance import STEP as IMPORTANCE
from stillhouse.pipeline.steps.pretrain import STEP, Config
from stillhouse.pipeline.steps.tokenize import STEP as TOKENIZE
from stillhouse.pretraining.model import BottleneckPretraining
from stillhouse.pretraining.objectives import NAMES
from stillhouse.pretraining.signals import COVERAGE, ICT, MLM_LOSS
from stillhouse.training import loop

HEAD = {"objective": "mlm", "trainable": "head", "max_steps": 60, "learning_rate": 0.03}
SHORT = {"epochs": 100.0, "max_steps": 6, "eval_steps": 2, "batch_size": 8, "max_length": 32}
SHORT |= {"heldout_fraction": 0.25, "precision": "fp32"}


@dataclass(frozen=True)
class Prepared:
    """The outputs of the steps before `pretrain` on the small corpus. `head` is the tiny model with a trained head."""

    folder: Path
    bare: Path

    def inputs(self, **changes: Path | None) -> dict[str, Path]:
        names = {"tokens": "tokens", "importance": "importance", "init": "head", "generator": "head"}
        chosen = {port: self.folder / name for port, name in names.items()} | changes
        return {port: path for port, path in chosen.items() if path is not None}


@pytest.fixture(scope="module")
def prepared(small_corpus: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("prepared")
    tokens = {"tokens": tokenized(folder / "tokens", small_corpus, tiny_model)}
    execute(IMPORTANCE, IMPORTANCE.config(), tokens, {"importance": folder / "importance"})
    outputs = {"encoder": folder / "head", "curves": folder / "head_curves"}
    config = build(Config, SHORT | HEAD, "head")
    execute(STEP, config, {"tokens": folder / "tokens", "init": tiny_model}, outputs)
    return Prepared(folder, tiny_model)


def pretrain(inputs: dict[str, Path], into: Path, **settings: Any) -> Path:
    return pretrained(inputs, into, SHORT | settings)


def test_a_new_head_is_trained_and_beats_the_unigram_baseline(prepared: Prepared) -> None:
    facts = read_manifest(prepared.folder / "head").facts
    assert facts["lm_head"] == "trained"
    assert facts["masked_accuracy"] > facts["unigram_accuracy"] > 0
    before = AutoModel.from_pretrained(prepared.bare).state_dict()
    after = AutoModel.from_pretrained(prepared.folder / "head").state_dict()
    for name, value in before.items():
        if not name.startswith("pooler."):
            torch.testing.assert_close(after[name], value, rtol=0, atol=0)


@pytest.mark.parametrize("objective", NAMES)
@pytest.mark.parametrize("unit", ["token", "word"])
def test_every_objective_lowers_its_heldout_loss(prepared: Prepared, tmp_path: Path, objective: str, unit: str) -> None:
    training = {"max_steps": 20, "eval_steps": 5, "learning_rate": 3e-3, "signals": unit == "token"}
    folder = pretrain(prepared.inputs(), tmp_path, objective=objective, mask_unit=unit, **training)
    with (tmp_path / "curves" / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [0, 5, 10, 15, 20]
    losses = [float(row["heldout_loss"]) for row in rows]
    assert min(losses) < losses[0]
    best = read_manifest(folder).facts["best_step"]
    assert losses[best // 5] == min(losses)


def test_the_curves_mark_the_step_that_another_signal_chose(prepared: Prepared, tmp_path: Path) -> None:
    training = {"max_steps": 20, "eval_steps": 5, "learning_rate": 3e-3, "metric_for_best_model": COVERAGE}
    folder = pretrain(prepared.inputs(), tmp_path, objective="mlm", **training)
    with (tmp_path / "curves" / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    [kept] = [row for row in rows if row["kept"] == "1"]
    assert int(kept["step"]) == read_manifest(folder).facts["best_step"]
    assert kept["heldout_loss"] != min(row["heldout_loss"] for row in rows), "the loss chose another"


@pytest.fixture(scope="module")
def articles(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write tokens of 8 articles, each with 3 passages of 3 sentences and links to all other articles."""
    folder = tmp_path_factory.mktemp("articles")
    words = ["red", "green", "blue", "bird", "fish", "tree", "one", "two", "three"]
    texts = [" ".join(f"the {words[(n + i) % 9]} {words[(2 * n + i) % 9]} sings." for i in range(3)) for n in range(24)]
    both = [(f"a{n}", f"a{m}") for n in range(8) for m in range(8) if n != m]
    links = {"source": [source for source, _ in both], "target": [target for _, target in both]}
    corpus = write_passages(
        folder / "corpus",
        texts,
        {"links": links},
        title=["the tree"] * 24,
        article_id=[f"a{n // 3}" for n in range(24)],
        section=["", "more", "more"] * 8,
        position=[n % 3 for n in range(24)],
    )
    return tokenized(folder / "tokens", corpus, tiny_model)


@pytest.mark.parametrize("objective", ["ict", "bfs", "wlp", "ict+bfs+wlp"])
def test_pair_tasks_train_a_bare_encoder_and_are_watched(
    articles: Path, tiny_model: Path, tmp_path: Path, objective: str
) -> None:
    inputs = {"tokens": articles, "init": tiny_model}
    settings = {"query_length": 16, "passage_length": 32, "pair_normalize": True, "temperature": 0.1}
    settings |= {"max_steps": 60, "eval_steps": 6, "learning_rate": 1e-2, "heldout_fraction": 0.4}
    folder = pretrain(inputs, tmp_path, objective=objective, **settings)
    losses = losses_of(tmp_path / "curves")
    assert min(losses) < losses[0]
    with (tmp_path / "curves" / "signals.csv").open() as file:
        names = {row["signal"] for row in csv.DictReader(file)}
    assert names == {ICT, MLM_LOSS, COVERAGE}
    assert read_manifest(folder).facts["lm_head"] == "absent", "no pair task trains a language-model head"
    with pytest.raises(InputError, match="untrained"):
        pretrain({"tokens": articles, "init": folder}, tmp_path / "next", objective="bow")


def test_other_libraries_load_the_encoder(prepared: Prepared, tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = pretrain(prepared.inputs(), tmp_path, objective="simlm")
    texts = ["the red bird sings", "a tree grows in the green"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    whole, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    encoder = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        hidden = encoder(**batch).last_hidden_state
        last = whole.eval()(**batch, output_hidden_states=True).hidden_states[-1]
    torch.testing.assert_close(hidden, last)
    vectors = hidden[:, 0] / hidden[:, 0].norm(dim=1, keepdim=True)
    found = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(found, vectors, atol=1e-5)


@pytest.mark.parametrize("objective", ["simlm_joint", "enhanced_decoding", "cdmae_bow"])
def test_a_killed_run_resumes_to_the_same_parameters(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: str
) -> None:
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    unbroken = digest_files(pretrain(prepared.inputs(), tmp_path / "unbroken", objective=objective))
    forward: Callable[..., Tensor] = BottleneckPretraining.forward
    training_steps = 0

    def killed_at_the_fifth(model: BottleneckPretraining, *inputs: Any, **weights: float) -> Tensor:
        nonlocal training_steps
        training_steps += model.training
        if training_steps == 5:
            raise KeyboardInterrupt
        return forward(model, *inputs, **weights)

    with monkeypatch.context() as patch:
        patch.setattr(BottleneckPretraining, "forward", killed_at_the_fifth)
        with pytest.raises(KeyboardInterrupt):
            pretrain(prepared.inputs(), tmp_path / "broken", objective=objective)
    assert not (tmp_path / "broken" / "encoder").exists()

    resumed_steps = 0

    def counted(model: BottleneckPretraining, *inputs: Any, **weights: float) -> Tensor:
        nonlocal resumed_steps
        resumed_steps += model.training
        return forward(model, *inputs, **weights)

    monkeypatch.setattr(BottleneckPretraining, "forward", counted)
    assert digest_files(pretrain(prepared.inputs(), tmp_path / "broken", objective=objective)) == unbroken
    assert resumed_steps == 2


def claimed_untrained(prepared: Prepared, folder: Path) -> Path:
    """Copy the trained model, but with a manifest that says that its head is untrained."""
    shutil.copytree(prepared.folder / "head", folder)
    made = read_manifest(folder)
    write_manifest(folder, made.step, made.config, made.inputs, made.facts | {"lm_head": "absent"})
    return folder


def other_vocabulary(prepared: Prepared, folder: Path) -> Path:
    """Copy the trained model, and swap two words of its vocabulary."""
    shutil.copytree(prepared.folder / "head", folder)
    (folder / "manifest.json").unlink()
    content = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["red"], vocabulary["green"] = vocabulary["green"], vocabulary["red"]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


def not_a_model(prepared: Prepared, folder: Path) -> Path:
    folder.mkdir()
    (folder / "notes.txt").write_text("nothing here")
    return folder


REFUSALS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "bare encoder": ("--trainable head", {"init": "bare"}, {}),
    "no generator": ("needs the input generator", {"generator": None}, {}),
    "no importance": ("stillhouse importance", {"importance": None}, {"objective": "cdmae"}),
    "bare generator": ("of the generator is untrained", {"generator": "bare"}, {}),
    "generator that says so": ("of the generator is untrained", {"generator": claimed_untrained}, {}),
    "generator of another vocabulary": ("generator has a different vocabulary", {"generator": other_vocabulary}, {}),
    "model of another vocabulary": ("start from has a different vocabulary", {"init": other_vocabulary}, {}),
    "not a model": ("no masked language model", {"init": not_a_model}, {}),
    "too long": ("lower max_length", {}, {"max_length": 100}),
    "decoder below encoder": ("at least encoder_mlm_probability", {}, {"encoder_mlm_probability": 0.6}),
    "pair tasks without sentences": ("passages of two sentences", {}, {"objective": "ict"}),
    "links that are not there": ("wlp", {}, {"objective": "wlp"}),
    "pairs in parts": (
        "set mini_batch_size and gradient_cache instead",
        {},
        {"objective": "ict", "gradient_accumulation_steps": 2},
    ),
    "untrainable": ("raise epochs", {"init": "bare"}, HEAD | {"max_steps": 1, "learning_rate": 0.0}),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(prepared: Prepared, tmp_path: Path, case: str) -> None:
    message, changes, settings = REFUSALS[case]
    folders = {
        port: prepared.bare if change == "bare" else change(prepared, tmp_path / "changed") if change else None
        for port, change in changes.items()
    }
    with pytest.raises(InputError, match=message):
        pretrain(prepared.inputs(**folders), tmp_path, **settings)
    assert not (tmp_path / "encoder").exists()


def test_lengths_follow_from_the_model(small_corpus: Path, tiny_model: Path, tmp_path: Path) -> None:
    """The passage length of `fetch-model` gives the same tokens and encoder as this length in every section."""
    model = tmp_path / "model" / "encoder"
    lengths = {"model": str(tiny_model), "query_length": 8, "passage_length": 12}
    execute(FETCH, build(FETCH.config, lengths, "model"), {}, {"encoder": model})
    digests = {}
    for name, settings in (("follows", {"max_length": None}), ("explicit", {"max_length": 12})):
        config = build(TOKENIZE.config, settings, "tokenize")
        tokens = {"tokens": tmp_path / name / "tokens"}
        execute(TOKENIZE, config, {"corpus": small_corpus, "tokenizer": model}, tokens)
        inputs = tokens | {"init": model}
        made = pretrain(inputs, tmp_path / name, objective="mlm", padding="kept", **settings)
        digests[name] = [digest_files(tokens["tokens"]), digest_files(made)["model.safetensors"]]
    assert digests["follows"] == digests["explicit"]
    found = np.diff(np.load(tmp_path / "follows" / "tokens" / "offsets.npy"))
    assert found.max() == 10, "twelve with [CLS] and [SEP]"
