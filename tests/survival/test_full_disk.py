"""Every step runs from its command line on a real file system that is too small, until it has enough room.

A step without room says so in one sentence and ends. Existing outputs stay unchanged, and the next run uses the work
that the step kept. The file systems are in memory, and only root can make them.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from beir_source import write_beir
from chat_server import address_of_this_process
from families import generator_folder
from micro_uses import FORKS
from small_disk import PAGE, Disk

from stillhouse.cli import main
from stillhouse.core.artifacts import MANIFEST
from stillhouse.pipeline.steps.registry import find_step, steps
from stillhouse.search.embeddings import VECTORS

ROOM = 1 << 14
"""Pages that are enough for every step."""
OLD = b'{"config": {}, "facts": {}, "files": {}, "inputs": {}, "step": "an old one"}'
COLOURS, ANIMALS = ("red", "green", "blue"), ("bird", "fish", "tree")
WORDS = (*COLOURS, *ANIMALS, "the", "a", "in", "of", "and", "sings", "swims", "grows", "one", "two", "three")
SAID = "stillhouse: the disk is full"
NOT_SAID = ("Traceback", "Exception ignored", "close error")


@dataclass(frozen=True)
class Run:
    """A step with its settings and its inputs, `name/output` of earlier runs. `begins` names its source setting."""

    step: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    begins: str = ""

    def words(self, root: Path, outputs: Path) -> list[str]:
        """Its command line, with the files below `root`."""
        step = find_step(self.step)
        folders = {name: root / source for name, source in self.inputs.items()} | self.places(outputs)
        words = [self.step, *(word for name, folder in folders.items() for word in step.argument(name, str(folder)))]
        words += [f"--{name.replace('_', '-')}={value}" for name, value in self.settings.items()]
        if self.begins == "base_url":
            return [*words, f"--base-url={address_of_this_process()}"]
        if self.begins == "writer":
            return [*words, f"--model={root / 'writer'}"]
        names = ("model", "source", "file", "questions")
        return words + [f"--{name}={root / name}" for name in names if name == self.begins]

    def places(self, outputs: Path) -> dict[str, Path]:
        return {port.name: outputs / port.name for port in find_step(self.step).outputs}


CORPUS, INIT, TOKENS = {"corpus": "ingest/corpus"}, "fetch-model/encoder", {"tokens": "tokenize/tokens"}
FEW = {"max_steps": 3, "batch_size": 8, "eval_steps": 100}
TRAINED = FEW | {"negatives_per_query": 1, "negatives_depth": 8}
INDEX = CORPUS | {"retriever": INIT}
BM25 = {"negatives": "bm25/negatives"}
DENSE = {"retriever": INIT, "index": "index/index"}
SAMPLES = {"bootstrap_samples": 100, "randomisation_samples": 100}

RUNS = {
    "fetch-model": Run("fetch-model", {}, {"pooling": "mean", "query_length": 16, "passage_length": 24}, "model"),
    "ingest": Run("ingest", begins="source"),
    "validate": Run("validate", CORPUS),
    "tokenize": Run("tokenize", CORPUS | {"tokenizer": INIT}, {"max_length": 32}),
    "importance": Run("importance", TOKENS),
    "count": Run("count", TOKENS),
    "importance with counts": Run("importance", TOKENS | {"counts": "count/counts"}),
    "pretrain": Run("pretrain", TOKENS | {"init": INIT}, FEW | {"objective": "mlm", "max_length": 32}),
    "bm25": Run("bm25", CORPUS, {"negatives_depth": 8}),
    "generate-queries": Run(
        "generate-queries", CORPUS | {"bm25": "bm25/bm25"}, {"model": "stand-in", "max_passages": 40}, "base_url"
    ),
    "train-generator": Run("train-generator", CORPUS, FEW, "writer"),
    "read-negatives": Run("read-negatives", CORPUS, {"negatives_depth": 8}, "file"),
    "index": Run("index", INDEX),
    "index hnsw": Run("index", INDEX, {"kind": "hnsw"}),
    "index ivfpq": Run("index", INDEX, {"kind": "ivfpq"}),
    "index sq8": Run("index", INDEX, {"kind": "sq8"}),
    "encode": Run("encode", INDEX),
    "retrieve": Run("retrieve", CORPUS | DENSE, {"depth": 20}),
    "mine": Run("mine", CORPUS | DENSE | {"others": "bm25/negatives"}, {"negatives_depth": 8}),
    "train-retriever": Run("train-retriever", CORPUS | BM25 | {"encoder": INIT}, TRAINED),
    "train-query-encoder": Run("train-query-encoder", CORPUS | {"encoder": INIT, "old_index": "index/index"}, FEW),
    "train-projection": Run("train-projection", CORPUS | {"encoder": INIT, "old_index": "index/index"}, FEW),
    "train-reranker": Run("train-reranker", CORPUS | BM25 | {"init": INIT}, TRAINED | {"max_length": 48}),
    "average": Run(
        "average", CORPUS | BM25 | {"start": INIT, "trained": "train-retriever/retriever"}, {"eval_depth": 8}
    ),
    "hybrid": Run("hybrid", CORPUS | DENSE | {"bm25": "bm25/bm25"}, {"depth": 20}),
    "label-queries": Run("label-queries", CORPUS | DENSE | {"bm25": "bm25/bm25"}, begins="questions"),
    "select-best": Run(
        "select-best",
        CORPUS | {"bm25": "bm25/bm25", "candidates/start": INIT, "indexes/start": "index/index"},
        {"depth": 20},
    ),
    "score-pairs": Run(
        "score-pairs", CORPUS | BM25 | {"reranker": "train-reranker/reranker"}, {"depth": 8, "batch_tokens": 128}
    ),
    "score-shard": Run(
        "score-shard", CORPUS | BM25 | {"reranker": "train-reranker/reranker"}, {"depth": 8, "batch_tokens": 128}
    ),
    "rerank": Run(
        "rerank", CORPUS | {"candidates": "retrieve/run", "reranker": "train-reranker/reranker"}, {"depth": 8}
    ),
    "evaluate": Run("evaluate", CORPUS | {"run/bm25": "bm25/run", "run/zero_shot": "retrieve/run"}, SAMPLES),
    "compare-release": Run("compare-release", CORPUS | {"champion": "bm25/run", "challenger": "retrieve/run"}, SAMPLES),
}


KEEPS_WORK = (
    "importance with counts",
    "count",
    "pretrain",
    "index",
    "train-retriever",
    "train-reranker",
    "score-pairs",
    "rerank",
)
"""Runs that keep unfinished work of some size. Only one of those that encode passages is included."""


def beir(folder: Path) -> Path:
    """300 passages; each split has some queries about them."""
    chance = random.Random(0)
    texts = [" ".join(chance.choices(WORDS, k=14)) for _ in range(300)]
    rows = [{"_id": f"p{i}", "title": f"{chance.choice(WORDS)} {i}", "text": text} for i, text in enumerate(texts)]
    asked = [" ".join(text.split()[:6]) for text in texts[:60]]
    return write_beir(folder, rows, asked, train=range(20), dev=range(20, 40), test=range(40, 60))


def command(words: list[str], work: Path, log: Path) -> None:
    """The command line in a process of its own; training keeps a checkpoint after every step."""
    file = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(STILLHOUSE_WORK=str(work), STILLHOUSE_QUIET="1", TMPDIR=str(work))
    from stillhouse.search import corpus_encoding
    from stillhouse.training import loop

    loop.SECONDS_BETWEEN_CHECKPOINTS, corpus_encoding.BLOCK = 0.0, 64
    sys.exit(main(words))


def end_of(words: list[str], work: Path, log: Path) -> int | None:
    process = FORKS.Process(target=command, args=(words, work, log))
    process.start()
    process.join()
    return process.exitcode


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """The outputs of every run with enough room, each in a folder of its name."""
    root = tmp_path_factory.mktemp("made")
    beir(root / "source")
    (root / "model").symlink_to(tiny_model)
    generator_folder("llama", root / "writer")
    (root / "questions").symlink_to(root / "source")
    (root / "file").write_text("".join(f"q{query}\tp{query}\tp{query + 60}\n" for query in range(40)))
    for name, run in RUNS.items():
        code = end_of(run.words(root, root / name), root / "work", root / "log")
        assert code == 0, f"{name}: {(root / 'log').read_text()}"
    return root


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@dataclass(frozen=True)
class Kept:
    """What a run that ends early keeps: checkpoints, each checked to be complete, and bytes of vectors and scores."""

    checkpoints: int
    bytes: int

    @classmethod
    def of(cls, work: Path) -> Kept:
        checkpoints = list(work.rglob("checkpoint-*.pt"))
        for path in checkpoints:
            assert hashlib.sha256(path.read_bytes()).hexdigest() in path.name
        rest = (path for ending in (f"*{VECTORS}", "scores-*.log") for path in work.rglob(ending))
        return cls(len(checkpoints), sum(path.stat().st_size for path in rest if not path.name.startswith(".")))


def rooms_without(folder: Path) -> tuple[int, list[int]]:
    """Return the sizes, in pages, that are one too small for the largest file below a folder, and for each in turn."""
    files = sorted((path.stat() for path in folder.rglob("*") if path.is_file()), key=lambda about: about.st_mtime_ns)
    pages = [-(-about.st_size // PAGE) for about in files]
    rooms = [sum(pages[: place + 1]) - 1 for place in range(len(pages))]
    return rooms[pages.index(max(pages))], rooms


def assert_reported(code: int | None, log: Path) -> None:
    said = log.read_text(errors="replace")
    assert code == 1, f"{code}: {said}"
    last = said.strip().splitlines()[-1]
    assert last.startswith(SAID) and "run the command again" in last, said
    assert not [words for words in NOT_SAID if words in said], said


def test_every_step_is_tried() -> None:
    assert {run.step for run in RUNS.values()} == set(steps())


@pytest.mark.parametrize("moments", ["one", pytest.param("all", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", RUNS)
def test_a_full_disk_for_outputs_is_reported(name: str, moments: str, made: Path, disk: Disk, tmp_path: Path) -> None:
    """The disk lacks one page for the largest file or, when all moments are tried, for each file in turn."""
    outputs, log = disk.folder / "artifacts", tmp_path / "log"
    words = RUNS[name].words(made, outputs)
    disk.resize(ROOM)
    for folder in RUNS[name].places(outputs).values():
        folder.mkdir(parents=True)
        (folder / MANIFEST).write_bytes(OLD)
    before, taken, (largest, rooms) = content(outputs), disk.taken(), rooms_without(made / name)
    for free in [largest] if moments == "one" else sorted(set(rooms)):
        disk.resize(taken + free)
        assert_reported(end_of(words, tmp_path / "work", log), log)
        assert content(outputs) == before and disk.taken() == taken, "half-written outputs"
    disk.resize(ROOM)
    assert end_of(words, tmp_path / "work", log) == 0, log.read_text()
    assert content(outputs) == content(made / name)


@pytest.mark.parametrize("growth", [4, pytest.param(1.3, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", KEEPS_WORK)
def test_a_full_disk_for_work_is_reported_and_resumed(
    name: str, growth: float, made: Path, disk: Disk, tmp_path: Path
) -> None:
    """The disk grows until there is enough room, and each run uses the work that the last one kept."""
    outputs, work, log = tmp_path / "artifacts", disk.folder / "work", tmp_path / "log"
    words = RUNS[name].words(made, outputs)
    outputs.mkdir()
    pages, kept = 1, Kept.of(work)
    while code := end_of(words, work, log):
        assert_reported(code, log)
        assert not list(outputs.iterdir()), "half-written outputs"
        before, kept = kept, Kept.of(work)
        assert kept.checkpoints >= before.checkpoints and kept.bytes >= before.bytes
        pages = int(pages * growth) + 1
        assert pages < ROOM
        disk.resize(pages)
    assert pages > 1, "it was never full"
    assert content(outputs) == content(made / name)
