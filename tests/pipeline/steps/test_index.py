"""The steps `encode` and `index`: changed corpora, interrupted work, shards, processes, bad input."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from indexed_corpora import FP32, Run, contents, corpus_of

from stillhouse.core.artifacts import read_manifest, write_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus
from stillhouse.models.encoder import BiEncoder


def fresh_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / name))


def test_an_index_of_a_changed_corpus_is_that_of_a_full_build(
    run_step: Run, small_corpus: Path, retriever: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passages are deleted, changed, added, renamed and moved: only the changed and added ones are encoded."""
    monkeypatch.setenv("STILLHOUSE_QUIET", "")
    run_step("index", {"corpus": small_corpus, "retriever": retriever}, "first", **FP32)
    passages = Corpus.open(small_corpus).passages
    changed = passages.drop(index=[3, 9, 20]).reset_index(drop=True).iloc[::-1].reset_index(drop=True)
    changed.loc[4, "text"] = "the two fish of the green tree sing"
    changed.loc[5, "title"] = "another tree"
    changed.loc[6, "passage_id"] = "renamed"
    added = changed.iloc[:1].assign(passage_id="new", text="a new bird in a new tree")
    corpus = corpus_of(small_corpus, tmp_path / "changed", pd.concat([changed, added], ignore_index=True))
    inputs = {"corpus": corpus, "retriever": retriever}
    computed = encoded_texts(monkeypatch)
    after = run_step("index", inputs, "after", **FP32)["index"]
    assert len(computed) == 3
    fresh_work(tmp_path, monkeypatch, "nothing kept")
    full = run_step("index", inputs, "full", **FP32)["index"]
    assert len(computed) == 3 + 22
    assert contents(after) == contents(full)


def test_an_index_that_was_interrupted_is_finished(
    run_step: Run, small_corpus: Path, retriever: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stillhouse.search import corpus_encoding

    inputs = {"corpus": small_corpus, "retriever": retriever}
    whole = contents(run_step("index", inputs, "whole", cache_gib=0.0, **FP32)["index"])
    monkeypatch.setattr(corpus_encoding, "BLOCK", 8)
    write, written = corpus_encoding.write_segment, []

    def failing(*arguments: object) -> None:
        if len(written) == 2:
            raise OSError("no space left")
        written.append(arguments)
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(corpus_encoding, "write_segment", failing)
    with pytest.raises(OSError, match="no space left"):
        run_step("index", inputs, cache_gib=0.0, **FP32)
    monkeypatch.setattr(corpus_encoding, "write_segment", write)
    computed = encoded_texts(monkeypatch)
    again = run_step("index", inputs, cache_gib=0.0, **FP32)["index"]
    assert len(computed) == 24 - 16 and contents(again) == whole


def encoded_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that records the passages that are tokenized from now on."""
    from stillhouse.models.encoder import BiEncoder

    noted: list[str] = []
    passages = BiEncoder.passages

    def noting(self: BiEncoder, texts: list[str]) -> object:
        noted.extend(texts)
        return passages(self, texts)

    monkeypatch.setattr(BiEncoder, "passages", noting)
    return noted


@pytest.fixture
def shards(run_step: Run, small_corpus: Path, retriever: Path, tmp_path: Path) -> Path:
    for shard in (1, 2, 3):
        inputs = {"corpus": small_corpus, "retriever": retriever}
        run_step("encode", inputs, f"shards/{shard}", shard=shard, shards=3, cache_gib=0.0, **FP32)
    for shard in (1, 2, 3):  # as a cluster provides them: a folder of vectors folders
        (tmp_path / "shards" / str(shard) / "vectors").rename(tmp_path / "shards" / f"of {shard}")
        (tmp_path / "shards" / str(shard)).rmdir()
    return tmp_path / "shards"


def test_an_index_of_shards_is_that_of_one_machine(
    run_step: Run, small_corpus: Path, retriever: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = {"corpus": small_corpus, "retriever": retriever}
    whole = contents(run_step("index", inputs, "whole", **FP32)["index"])
    computed = encoded_texts(monkeypatch)
    joined = run_step("index", inputs | {"vectors": shards}, "joined", **FP32)["index"]
    assert not computed
    found = contents(joined)
    manifests = [json.loads(files.pop("manifest.json")) for files in (found, whole)]
    assert found == whole
    assert manifests[0]["files"] == manifests[1]["files"]
    assert manifests[0]["inputs"].keys() - manifests[1]["inputs"].keys() == {"vectors"}


def missing(shards: Path) -> None:
    shutil.rmtree(shards / "of 2")


def twice(shards: Path) -> None:
    shutil.copytree(shards / "of 2", shards / "copy of 2")


def damaged(shards: Path) -> None:
    path = shards / "of 1" / "passages.vectors.npy"
    path.write_bytes(path.read_bytes()[:-4])


def nothing(shards: Path) -> None:
    for path in shards.iterdir():
        shutil.rmtree(path)
    (shards / "notes.txt").write_text("no vectors")


def mixed(shards: Path) -> None:
    shutil.rmtree(shards / "of 3")
    made = read_manifest(shards / "of 2")
    write_manifest(shards / "of 2", made.step, made.config, made.inputs, made.facts | {"shards": 2})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (missing, "but holds 1 of 3, 3 of 3; run `stillhouse encode` for"),
        (twice, "must hold every shard of one division once"),
        (damaged, "passages.vectors.npy changed after it was written"),
        (nothing, "has no vectors"),
        (mixed, "must hold every shard of one division once"),
    ],
)
def test_shards_that_do_not_make_a_whole_are_refused(
    run_step: Run, small_corpus: Path, retriever: Path, shards: Path, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(shards)
    with pytest.raises(InputError, match=message):
        run_step("index", {"corpus": small_corpus, "retriever": retriever, "vectors": shards}, **FP32)


def test_shards_of_another_corpus_or_model_are_refused(
    run_step: Run, small_corpus: Path, retriever: Path, tiny_model: Path, shards: Path, tmp_path: Path
) -> None:
    other = corpus_of(small_corpus, tmp_path / "other", Corpus.open(small_corpus).passages.iloc[:20])
    with pytest.raises(InputError, match="encoded from another corpus"):
        run_step("index", {"corpus": other, "retriever": retriever, "vectors": shards}, **FP32)
    with pytest.raises(InputError, match="encoded by another model, or in another precision"):
        run_step("index", {"corpus": small_corpus, "retriever": tiny_model, "vectors": shards}, **FP32)
    with pytest.raises(InputError, match="in another precision"):
        run_step("index", {"corpus": small_corpus, "retriever": retriever, "vectors": shards}, precision="bf16")
    index = run_step("index", {"corpus": small_corpus, "retriever": retriever}, "index", **FP32)["index"]
    with pytest.raises(InputError, match="written by step 'index'"):
        run_step("index", {"corpus": small_corpus, "retriever": retriever, "vectors": index}, "again", **FP32)


@pytest.mark.long
def test_two_processes_write_the_same_index_as_one(
    run_step: Run, small_corpus: Path, retriever: Path, tmp_path: Path
) -> None:
    inputs = {"corpus": small_corpus, "retriever": retriever}
    alone = contents(run_step("index", inputs, "alone", **FP32)["index"])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "stillhouse.cli", "index", "--corpus", str(small_corpus), "--retriever", str(retriever)]
    command += ["--index", str(tmp_path / "both"), "--work", str(tmp_path / "own work"), "--precision", "fp32"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "STILLHOUSE_QUIET": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert contents(tmp_path / "both") == alone
    assert len(list((tmp_path / "own work" / "embeddings").rglob("*.texts.npy"))) == 2
