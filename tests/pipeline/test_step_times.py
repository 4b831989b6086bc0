"""Times of steps: by hand, with transformers' weights, and for every step of every recipe."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel, PreTrainedConfig

from stillhouse.pipeline import step_times
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.recipes import SHIPPED, Recipe, configs, find_recipe, load_recipe
from stillhouse.pipeline.run_progress import outlook
from stillhouse.pipeline.step_times import OVERHEAD, Scale, layer_weights, predicted_seconds, scale_of, seconds_of
from stillhouse.pipeline.steps.index import Config as Index
from stillhouse.pipeline.steps.train_generator import Config as Generator
from stillhouse.pipeline.steps.train_retriever import Config as Training

SCALE = Scale(passages=1000, queries={"train": 400, "dev": 50, "test": 100}, tokens=30.0, weights=10**6)


@pytest.fixture(autouse=True)
def one_gigaflop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A computer that reaches 10^9 operations per second in a model."""
    monkeypatch.setattr(step_times, "model_speed", lambda precision: 1e9)


def test_times_computed_by_hand() -> None:
    """1,000 passages of 30 tokens and 10^6 weights take 6 x 10^10 operations. Training reads queries of 20 tokens."""
    assert predicted_seconds("index", Index(), SCALE) == pytest.approx(OVERHEAD + 60)
    training = Training(batch_size=32, epochs=2, max_steps=10, negatives_per_query=1, eval_share=None)
    read = 10 * 32 * (20 + 2 * 30)
    assert predicted_seconds("train-retriever", training, SCALE) == pytest.approx(OVERHEAD + 3 * 2e6 * read / 1e9)
    writer = Generator(epochs=None, max_steps=5, max_pairs=None, batch_size=8, passage_tokens=30)
    operations = 3 * 2 * step_times.WRITER_WEIGHTS * 5 * 8 * (30 + 20)
    assert predicted_seconds("train-generator", writer, SCALE) == pytest.approx(OVERHEAD + operations / 1e9)
    assert predicted_seconds("teacher", object(), SCALE) == OVERHEAD


@pytest.mark.parametrize(("name", "gpu"), [("nvidia0", True), ("nvidia12", True), ("nvidiactl", False)])
def test_a_gpu_may_have_any_number(name: str, gpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that was given the third GPU has no first."""
    (tmp_path / name).touch()
    monkeypatch.setattr(step_times, "DEVICES", tmp_path)
    monkeypatch.setattr(step_times, "device", lambda: "auto")
    assert step_times.on_processor() is not gpu


SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40, "vocab_size": 50}
QWEN = SIZES | {"num_key_value_heads": 2, "head_dim": 8}
CONFIGS = [AutoConfig.for_model(name, **size) for name, size in {"bert": SIZES, "llama": SIZES, "qwen3": QWEN}.items()]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.model_type)
def test_parameter_counts_equal_those_of_the_layers(config: PreTrainedConfig) -> None:
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    matrices = sum(value.numel() for name, value in model.named_parameters() if value.ndim == 2 and "layer" in name)
    assert layer_weights(config.to_dict()) == matrices


def test_writing_takes_as_long_as_the_writer_is_large(tmp_path: Path) -> None:
    CONFIGS[1].save_pretrained(tmp_path)
    recipe = load_recipe(find_recipe("generated"))
    steps = graph_of(recipe)

    def seconds(recipe: Recipe) -> dict[str, float]:
        found = seconds_of(steps, configs(recipe, "generated"), SCALE)
        return {step: (found[step] - OVERHEAD) for step in ("question_writer", "generated", "best")}

    larger = seconds(recipe | {"question_writer": recipe["question_writer"] | {"model": str(tmp_path)}})
    ratio = layer_weights(CONFIGS[1].to_dict()) / step_times.WRITER_WEIGHTS
    ratios = {"question_writer": ratio, "generated": ratio, "best": 1}
    assert larger == pytest.approx({step: ratios[step] * time for step, time in seconds(recipe).items()})


@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED.glob("*.yaml")))
def test_every_step_of_a_recipe_has_a_time(name: str) -> None:
    recipe = load_recipe(find_recipe(name))
    settings = configs(recipe, name)
    for step in graph_of(recipe, name):
        seconds = predicted_seconds(step.kind, settings[step.name], SCALE)
        assert math.isfinite(seconds) and seconds >= OVERHEAD, step.name


def test_a_run_has_a_time_once_corpus_and_model_exist(
    tiny_model: Path, run_step: Callable[..., dict[str, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = run_step("fetch-model", {}, model=str(tiny_model), query_length=16, passage_length=24)
    corpus = run_step("ingest", {}, source="sample", max_articles=5)["corpus"]
    monkeypatch.setenv("STILLHOUSE_DEVICE", "cpu")
    root, recipe = tmp_path / "artifacts", load_recipe(find_recipe("labelled"))
    settings, steps = configs(recipe, "labelled"), graph_of(recipe)
    assert outlook(steps, 30, settings, root) == f"{len(steps)} of 30 steps to do"
    written = load_recipe(find_recipe("generated"))
    for place, target in (("ingest/corpus", corpus), ("fetch_model/encoder", fetched["encoder"])):
        (root / place).parent.mkdir(parents=True)
        (root / place).symlink_to(target)
    assert scale_of(root / "ingest/corpus", root / "fetch_model/encoder") is not None
    assert outlook(steps, 30, settings, root).startswith(f"{len(steps)} of 30 steps to do: about ")
    (root / "ingest").rename(root / "passages")  # what the language model asks about, before there are its questions
    assert outlook(steps, 30, settings, root) == f"{len(steps)} of 30 steps to do"
    assert ": about " in outlook(graph_of(written), 30, configs(written, "generated"), root)
