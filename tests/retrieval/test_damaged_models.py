"""A damaged model folder is bad input for every command that reads one: exit code 2, and the error names the file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from model_damages import BAG, HUB, OWN, TRANSFORMER, Damage
from torch import nn
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertForPreTraining

from stillhouse.artifacts import MANIFEST, foreign_manifest, read_manifest, write_manifest
from stillhouse.cli import main
from stillhouse.errors import InputError
from stillhouse.pretraining.masked_lm import load_masked_lm
from stillhouse.retrieval.models.cross_encoder import CrossEncoder
from stillhouse.retrieval.models.encoder import BiEncoder
from stillhouse.retrieval.models.encoder_folder import write_towers
from stillhouse.retrieval.models.encoder_settings import EncoderSettings
from stillhouse.retrieval.models.source import fetch
from stillhouse.retrieval.models.towers import BagOfWordsTower, TransformerTower

Run = Callable[..., dict[str, Path]]


@pytest.fixture(scope="module")
def made(
    tiny_model: Path,
    small_corpus: Path,
    tmp_path_factory: pytest.TempPathFactory,
    runs_of_steps: Callable[[Path], Run],
) -> dict[str, Path]:
    """Undamaged model folders `hub`, `own`, `bag` and `reranker`, and the other inputs of the commands."""
    root = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STILLHOUSE_WORK", str(root / "work"))
        run = runs_of_steps(root)
        lengths = {"query_length": 16, "passage_length": 24}
        hub = run("fetch-model", {}, "hub", model=str(tiny_model), pooling="mean", **lengths)["encoder"]
        (hub / MANIFEST).unlink()
        (hub / "stillhouse.json").unlink()
        torch.manual_seed(0)
        AutoModelForMaskedLM.from_pretrained(hub).save_pretrained(hub)
        tokenizer = AutoTokenizer.from_pretrained(tiny_model)
        layer = nn.Linear(32, 6)
        tower = TransformerTower(AutoModel.from_pretrained(tiny_model), "mean", layer)
        settings = EncoderSettings("mean", projection=6, **lengths)
        write_towers(_folder(root / "own"), {"passage": tower}, tokenizer, settings)
        bag = BagOfWordsTower(len(tokenizer), (2, 3, 0), width=6, embedding=16, hidden=8)
        write_towers(_folder(root / "bag"), {"passage": bag}, tokenizer, settings)
        CrossEncoder.start(tiny_model, max_length=24).save(root / "reranker")
        corpus = {"corpus": small_corpus}
        found = {"hub": hub, "own": root / "own", "bag": root / "bag", "reranker": root / "reranker", **corpus}
        found |= {"index": run("index", corpus | {"retriever": hub}, precision="fp32")["index"]}
        found |= run("bm25", corpus, negatives_depth=4)
        found |= run("tokenize", corpus | {"tokenizer": hub}, max_length=24)
        found["beir"] = beir(root / "beir")
    return found


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def beir(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "p", "title": "", "text": "the red bird sings"}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "which bird"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tp\t1\n")
    return folder


@pytest.fixture
def damaged(made: dict[str, Path], tmp_path: Path) -> Callable[[str, Damage], Path]:
    """Returns a function that copies one of the undamaged folders and damages the copy."""

    def copy(kind: str, damage: Damage) -> Path:
        folder = shutil.copytree(made[kind], tmp_path / "model")
        damage(folder)
        return folder

    return copy


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[[list[str], str], None]:
    """Returns a function that runs a command line and checks that its error names the file."""

    def call(words: list[str], named: str) -> None:
        capsys.readouterr()
        code = main(words)
        said = capsys.readouterr().err
        assert code == InputError.exit_code, said
        assert "Traceback" not in said and named in said.splitlines()[-1 if words[0] != "zero-shot" else -2], said

    return call


def flags(**folders: object) -> list[str]:
    return [f"--{name.replace('_', '-')}={folder}" for name, folder in folders.items()]


def claimed_by(index: Path, retriever: Path, into: Path) -> Path:
    """Copy an index as if another retriever had made it: the copy's manifest records that retriever's digest."""
    shutil.copytree(index, into, ignore=shutil.ignore_patterns(MANIFEST))
    said = read_manifest(index)
    inputs = dict(said.inputs) | {"retriever": foreign_manifest(retriever).digest}
    write_manifest(into, said.step, said.config, inputs, said.facts)
    return into


def command(name: str, model: Path, made: dict[str, Path], out: Path) -> list[str]:
    """A command line that reads the model folder."""
    corpus, trained = {"corpus": made["corpus"]}, {"negatives": made["negatives"], "curves": out / "curves"}
    short = {"max_steps": 1, "batch_size": 2, "precision": "fp32", "negatives_depth": 4, "negatives_per_query": 1}
    if name in ("retrieve", "search", "mine"):
        corpus |= {"retriever": model, "index": claimed_by(made["index"], model, out / "index")}
    words: dict[str, list[str]] = {
        "fetch-model": flags(model=model, encoder=out / "encoder", query_length=16, passage_length=24),
        "tokenize": flags(**corpus, tokenizer=model, tokens=out / "tokens"),
        "pretrain": [
            *flags(tokens=made["tokens"], init=model, encoder=out / "encoder", curves=out / "curves"),
            *flags(objective="mlm", max_steps=1, max_length=24, batch_size=2, precision="fp32"),
        ],
        "index": flags(**corpus | {"retriever": model, "index": out / "made"}),
        "encode": flags(**corpus | {"retriever": model}, vectors=out / "vectors"),
        "train-retriever": flags(corpus=made["corpus"], encoder=model, **trained, retriever=out / "retriever", **short),
        "train-reranker": flags(**corpus, init=model, **trained, reranker=out / "made", **short, max_length=24),
        "average": flags(
            corpus=made["corpus"],
            start=model,
            trained=model,
            retriever=out / "retriever",
            choices=out / "choices",
            negatives=made["negatives"],
        ),
        "score-pairs": flags(**corpus, negatives=made["negatives"], reranker=model, teacher=out / "teacher"),
        "rerank": flags(**corpus, candidates=made["run"], reranker=model, run=out / "run"),
        "retrieve": flags(**corpus, run=out / "run"),
        "mine": flags(**corpus, negatives=out / "negatives"),
        "search": ["which", "bird", *flags(**corpus)],
        "zero-shot": [str(made["beir"]), *flags(retriever=model, folder=out / "zero"), "--no-bm25", "--quiet"],
        "compare": [*flags(objectives="none,bow", recipe=out / "recipe.yaml", folder=out / "compared"), "--quiet"],
    }
    if name == "compare":
        (out / "recipe.yaml").write_text(f"fetch_model:\n  model: {model}\ningest:\n  source: {made['beir']}\n")
    return [name, *words[name]]


READ_AS_ENCODERS = ("index", "fetch-model", "pretrain", "train-reranker")
"""A command for each way to load an encoder; the other commands that read one are tested with a few damages."""


@pytest.mark.parametrize("damage", [*TRANSFORMER, *HUB])
def test_a_damaged_encoder_is_refused(
    damage: str,
    made: dict[str, Path],
    damaged: Callable[[str, Damage], Path],
    refused: Callable[[list[str], str], None],
    tmp_path: Path,
) -> None:
    work, named = (TRANSFORMER | HUB)[damage]
    model = damaged("hub", work)
    for name in READ_AS_ENCODERS[: 3 if damage in HUB else 4]:  # a re-ranker needs no pooling
        refused(command(name, model, made, tmp_path), named)
    assert not (tmp_path / "sprung").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name != "model"] == []


@pytest.mark.parametrize("damage", TRANSFORMER)
def test_a_damaged_reranker_is_refused(
    damage: str,
    made: dict[str, Path],
    damaged: Callable[[str, Damage], Path],
    refused: Callable[[list[str], str], None],
    tmp_path: Path,
) -> None:
    work, named = TRANSFORMER[damage]
    model = damaged("reranker", work)
    refused(command("score-pairs", model, made, tmp_path), named)


@pytest.mark.parametrize(("kind", "damage"), [*(("own", name) for name in OWN), *(("bag", name) for name in BAG)])
def test_a_damaged_folder_of_our_own_is_refused(
    kind: str,
    damage: str,
    made: dict[str, Path],
    damaged: Callable[[str, Damage], Path],
    refused: Callable[[list[str], str], None],
    tmp_path: Path,
) -> None:
    work, named = (OWN if kind == "own" else BAG)[damage]
    refused(command("index", damaged(kind, work), made, tmp_path), named)


OTHERS = {
    "hub": ("encode", "train-retriever", "average", "retrieve", "search", "mine", "zero-shot", "compare"),
    "reranker": ("rerank",),
}


@pytest.mark.parametrize("damage", ["weights cut short", "weights that are NaN", "a layer too many", "no tokenizer"])
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in OTHERS.items() for name in names])
def test_every_command_refuses_a_damaged_model(
    kind: str,
    name: str,
    damage: str,
    made: dict[str, Path],
    damaged: Callable[[str, Damage], Path],
    refused: Callable[[list[str], str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    work, named = TRANSFORMER[damage]
    model = damaged(kind, work)
    refused(command(name, model, made, tmp_path), named)


def test_tokenize_refuses_a_damaged_tokenizer(
    made: dict[str, Path],
    damaged: Callable[[str, Damage], Path],
    refused: Callable[[list[str], str], None],
    tmp_path: Path,
) -> None:
    work, named = TRANSFORMER["a tokenizer cut short"]
    refused(command("tokenize", damaged("hub", work), made, tmp_path), named)


def test_the_whole_folders_are_read(made: dict[str, Path], tmp_path: Path) -> None:
    """The damage alone causes the refusals above: every loader accepts the undamaged folder."""
    for kind in ("hub", "own", "bag"):
        assert BiEncoder.load(made[kind]).width == (32 if kind == "hub" else 6)
    assert CrossEncoder.load(made["reranker"]).max_length == 24
    assert CrossEncoder.start(made["hub"], max_length=24).max_length == 24
    assert load_masked_lm(made["hub"], seed=0).head_trained
    assert fetch(str(made["hub"]), None, None, 16, 24, tmp_path)["lm_head"] == "trained"


def test_parts_that_other_tools_omit_or_add_are_accepted(tiny_model: Path, tmp_path: Path) -> None:
    """BERT as its authors saved it: with two heads and old parameter names, and without a pooler in one case."""
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(tiny_model, tmp_path / "model")
    torch.manual_seed(0)
    BertForPreTraining.from_pretrained(tiny_model).save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    weights["bert.embeddings.position_ids"] = torch.arange(64)[None]
    renamed = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): value for name, value in weights.items()}
    renamed = {name.replace("LayerNorm.bias", "LayerNorm.beta"): value for name, value in renamed.items()}
    for state in (renamed, {name: value for name, value in renamed.items() if "pooler" not in name}):
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        encoder = BiEncoder.load(folder).tower("passage").encoder
        for name, value in AutoModel.from_pretrained(tiny_model).state_dict().items():
            if "pooler" not in name:
                assert torch.equal(encoder.state_dict()[name], value), name
        assert load_masked_lm(folder, seed=0).head_trained
        CrossEncoder.start(folder, max_length=24)


def test_weights_in_several_files_are_read(tiny_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    whole = AutoModel.from_pretrained(tiny_model)
    (folder / "model.safetensors").unlink()
    whole.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    encoder = BiEncoder.load(folder).tower("passage").encoder
    for name, value in whole.state_dict().items():
        assert torch.equal(encoder.state_dict()[name], value), name
    last = max(folder.glob("model-*.safetensors"))
    last.unlink()
    with pytest.raises(InputError, match=last.name):
        BiEncoder.load(folder)


def test_a_scoring_layer_of_other_labels_is_drawn_anew(tiny_model: Path, tmp_path: Path) -> None:
    """Training a cross-encoder with one score can start from one with three classes."""
    from transformers import AutoModelForSequenceClassification

    folder = shutil.copytree(tiny_model, tmp_path / "model")
    AutoModelForSequenceClassification.from_pretrained(tiny_model, num_labels=3).save_pretrained(folder)
    assert CrossEncoder.start(folder, max_length=24).model.config.num_labels == 1
    with pytest.raises(InputError, match="no layer that gives one score per pair"):
        CrossEncoder.load(folder)


def test_feed_forward_chunks_need_not_divide_the_length(tiny_model: Path, tmp_path: Path) -> None:
    """`chunk_size_feed_forward` saves memory and changes no vector; transformers fails at other lengths."""
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | {"chunk_size_feed_forward": 5}))
    ids, mask = torch.tensor([[2, 7, 8, 3]]), torch.ones(1, 4, dtype=torch.long)
    found, expected = (BiEncoder.load(place)(ids, mask, "passage") for place in (folder, tiny_model))
    assert torch.equal(found, expected)


def test_a_length_that_nobody_set_is_what_the_model_reads(tiny_model: Path) -> None:
    """[CLS] and 144 tokens are the defaults; this model has 64 positions."""
    settings = BiEncoder.load(tiny_model).settings
    assert (settings.pooling, settings.query_length, settings.passage_length) == ("cls", 32, 64)


def test_running_out_of_memory_is_not_bad_input(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(AutoModel, "from_pretrained", full)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        BiEncoder.load(tiny_model)


@pytest.mark.parametrize(("config", "asked"), [({"hidden_size": 30_000}, "hidden_size"), ({}, "a model of")])
def test_a_config_larger_than_its_weights_is_refused_before_loading(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, int], asked: str
) -> None:
    """The refusal comes before loading, even where the memory would suffice."""

    def loaded(*_: object, **__: object) -> None:
        raise AssertionError("loading began")

    folder = shutil.copytree(tiny_model, tmp_path / "model")
    content = json.loads((folder / "config.json").read_text())
    large = {"max_position_embeddings": 20_000_000} | config
    (folder / "config.json").write_text(json.dumps(content | large))
    monkeypatch.setattr(AutoModel, "from_pretrained", loaded)
    with pytest.raises(InputError, match=asked):
        BiEncoder.load(folder)
