"""Prompts before queries and passages are read, fetched, kept and encoded as in sentence-transformers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from stillhouse.core.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.encoder_settings import read_settings
from stillhouse.models.query_encoder import EXACT, AnyEncoder, PlainBert, open_query_encoder
from stillhouse.models.source import fetch
from stillhouse.models.towers import Role

CPU = Context(Path(), "cpu", quiet=True)
TEXTS = ["red bird sings", "fish", "", "which blue tree grows in the green one and the red two fish swims"]
QUERY, PASSAGE = "what is ", "the one "
PROMPTS = {"query_prompt": QUERY, "passage_prompt": PASSAGE}
GLUED = {"query_prompt": "what is", "passage_prompt": "the one"}
"""Without the space, the last word of a prompt and the first of a text are one word."""


def fetched(source: Path, folder: Path, **prompts: Any) -> Path:
    folder.mkdir(parents=True)
    fetch(str(source), None, "mean", 12, 12, folder, **prompts)
    return folder


def vectors(folder: Path, role: Role) -> np.ndarray:
    encoder = BiEncoder.load(folder)
    return encode(encoder, encoder.texts(TEXTS, role), CPU, "test", EXACT)


@pytest.fixture
def plain(tiny_model: Path, tmp_path: Path) -> Path:
    return fetched(tiny_model, tmp_path / "plain")


@pytest.mark.parametrize("prompts", [PROMPTS, GLUED])
def test_vectors_are_those_of_sentence_transformers(plain: Path, tmp_path: Path, prompts: dict[str, str]) -> None:
    folder = fetched(plain, tmp_path / "prompted", **prompts)
    without, own = (SentenceTransformer(str(path), device="cpu") for path in (plain, folder))
    for role, encode_role in (("query", own.encode_query), ("passage", own.encode_document)):
        expected = without.encode(TEXTS, prompt=prompts[f"{role}_prompt"])
        np.testing.assert_allclose(vectors(folder, role), expected, atol=1e-5)  # type: ignore[arg-type]
        np.testing.assert_allclose(encode_role(TEXTS), expected, atol=1e-5)


@pytest.mark.parametrize(("towers", "kind"), [("shared", PlainBert), ("separate", PlainBert), ("shared", AnyEncoder)])
def test_questions_are_read_with_the_prompt(plain: Path, tmp_path: Path, towers: str, kind: type[Any]) -> None:
    encoder = BiEncoder.load(plain, towers=towers, **PROMPTS)
    with whole_folder(tmp_path / "retriever") as staging:
        encoder.save(staging)
        write_manifest(staging, "train-retriever", {}, {}, {})
    if kind is AnyEncoder:
        (tmp_path / "retriever" / "manifest.json").unlink()
    reader = open_query_encoder(tmp_path / "retriever", CPU)
    assert isinstance(reader, kind)
    expected = SentenceTransformer(str(plain), device="cpu").encode(TEXTS, prompt=QUERY)
    np.testing.assert_allclose(reader.vectors(reader.tokenize(TEXTS)), expected, atol=1e-5)


def fetched_unchanged(source: Path, folder: Path) -> Path:
    folder.mkdir()
    fetch(str(source), None, None, 12, 12, folder)
    return folder


@pytest.mark.parametrize("name", ["document", "passage"])
def test_a_models_own_prompts_are_used(tiny_model: Path, tmp_path: Path, name: str) -> None:
    transformer = Transformer(str(tiny_model), max_seq_length=12)
    pooling = Pooling(32, "mean")
    source = SentenceTransformer(modules=[transformer, pooling], prompts={"query": QUERY, name: PASSAGE}, device="cpu")
    source.similarity_fn_name = "dot"
    source.save_pretrained(str(tmp_path / "hub"))
    folder = fetched_unchanged(tmp_path / "hub", tmp_path / "own")
    settings = read_settings(folder)
    assert (settings.query_prompt, settings.passage_prompt) == (QUERY, PASSAGE)
    for role, prompt in (("query", QUERY), ("passage", PASSAGE)):
        expected = source.encode(TEXTS, prompt=prompt)
        np.testing.assert_allclose(vectors(folder, role), expected, atol=1e-5)  # type: ignore[arg-type]
        direct = vectors(tmp_path / "hub", role)[:3]  # lengths are the defaults there
        np.testing.assert_allclose(direct, expected[:3], atol=1e-5)
    others = read_settings(fetched(tmp_path / "hub", tmp_path / "others", query_prompt="", passage_prompt="one "))
    assert (others.query_prompt, others.passage_prompt) == ("", "one ")


def test_prompts_that_cannot_be_read_are_refused(plain: Path, tmp_path: Path) -> None:
    for number, prompts in enumerate([["query: "], {"query": 3}]):
        source = Path(shutil.copytree(plain, tmp_path / f"source{number}"))
        (source / "stillhouse.json").unlink()
        (source / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
        with pytest.raises(InputError, match=r"config_sentence_transformers\.json: its prompts are not texts"):
            fetched(source, tmp_path / f"refused{number}")


@pytest.mark.parametrize("role", ["query", "passage"])
def test_a_prompt_must_leave_room_for_a_text(plain: Path, tmp_path: Path, role: str) -> None:
    """Two special tokens and ten words fill all twelve tokens."""
    fetched(plain, tmp_path / "room", **{f"{role}_prompt": "red " * 9})
    with pytest.raises(InputError, match=f"{role}_prompt takes 12 tokens, .* but {role}_length is 12"):
        fetched(plain, tmp_path / "full", **{f"{role}_prompt": "red " * 10})


def prompted_corpus(small_corpus: Path, folder: Path) -> Path:
    """Write the corpus again with the prompts in its texts."""
    import pandas as pd

    from stillhouse.corpus.store import write_tables

    names = ("passages", "queries", "qrels")
    tables = {name: pd.read_parquet(small_corpus / f"{name}.parquet") for name in names}
    tables["passages"]["title"] = PASSAGE + tables["passages"]["title"].astype(str)
    tables["queries"]["text"] = QUERY + tables["queries"]["text"].astype(str)
    with whole_folder(folder) as staging:
        write_tables(staging, {name: dict(table.items()) for name, table in tables.items()})
        write_manifest(staging, "ingest", {}, {}, {"passages": 24})
    return folder


def test_every_step_reads_as_if_the_prompts_were_in_the_texts(
    plain: Path, small_corpus: Path, tmp_path: Path, run_step: Callable[..., dict[str, Path]]
) -> None:
    """Training, indexing, mining and search give the same bytes with the prompts in the model or in the corpus."""
    short = {"epochs": None, "max_steps": 4, "batch_size": 6, "learning_rate": 0.01, "negatives_per_query": 2}
    found = []
    for name, corpus, prompts in (
        ("model", small_corpus, PROMPTS),
        ("corpus", prompted_corpus(small_corpus, tmp_path / "prompted"), {}),
    ):
        sizes = {"pooling": "mean", "query_length": 24, "passage_length": 32}
        start = run_step("fetch-model", {}, f"{name}/start", model=str(plain), **sizes, **prompts)["encoder"]
        inputs = {"corpus": corpus, "retriever": start}
        index = run_step("index", inputs, f"{name}/first", cache_gib=0.0)["index"]
        mined = run_step("mine", inputs | {"index": index}, f"{name}/mine", negatives_depth=6)["negatives"]
        training = {"corpus": corpus, "encoder": start, "negatives": mined}
        settings = short | {"negatives_depth": 4, "precision": "fp32"}
        made = run_step("train-retriever", training, f"{name}/train", **settings)["retriever"]
        inputs = {"corpus": corpus, "retriever": made}
        index = run_step("index", inputs, f"{name}/index", cache_gib=0.0)["index"]
        run = run_step("retrieve", inputs | {"index": index}, f"{name}/run")["run"]
        found.append((mined, made, index, run))
    for one, other, files in zip(
        *found, [["rows.npy"], ["model.safetensors"], ["index.faiss"], ["dev.trec", "test.trec"]]
    ):
        for file in files:
            assert (one / file).read_bytes() == (other / file).read_bytes(), file
    settings = read_settings(found[0][1])
    assert (settings.query_prompt, settings.passage_prompt) == (QUERY, PASSAGE)
    config = read_manifest(tmp_path / "model" / "start" / "encoder").config
    assert (config["query_prompt"], config["passage_prompt"]) == (QUERY, PASSAGE)
