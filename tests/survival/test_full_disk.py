"""Every step runs from its command line on a real file system that is too small, until it has enough room.

A step without room says so in one sentence and ends. Existing outputs stay unchanged, and the next run uses the work
that the step kept. The file systems are in memory, and only root can make them.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from micro_steps import FORKS, RUN_STEPS, settings_of
from small_disk import PAGE, Disk
from test_killed_steps import content

from stillhouse.cli import main
from stillhouse.core.artifacts import MANIFEST
from stillhouse.kubeflow.pods.several_processes import step_words
from stillhouse.pipeline.graph import GraphStep
from stillhouse.search.embeddings import VECTORS

ROOM = 1 << 19
"""Pages that are enough for every step, also with the models of `make test-kill`."""
OLD = b'{"config": {}, "facts": {}, "files": {}, "inputs": {}, "step": "an old one"}'
SAID = "stillhouse: the disk is full"
NOT_SAID = ("Traceback", "Exception ignored", "close error")
Calm = tuple[Path, dict[str, float]]

SIMLM_STEPS = {step.kind: step for step in reversed(RUN_STEPS)}
"""The first step of each step."""
KEEPS_WORK = ("importance", "count", "pretrain", "index", "train-retriever", "train-reranker", "score-pairs", "rerank")
"""Steps that keep unfinished work of some size. Only one of those that encode passages is included."""


def words_of(step: GraphStep, root: Path, outputs: Path) -> list[str]:
    return step_words(step.spec, settings_of(step, root), step.input_paths(root), step.output_paths(outputs))


def made(step: GraphStep, root: Path) -> dict[str, bytes]:
    """What an undisturbed run of a step wrote."""
    files = {}
    for folder in step.output_paths(root).values():
        files |= {str((folder / name).relative_to(root)): data for name, data in content(folder).items()}
    return files


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


@pytest.mark.parametrize("moments", ["one", pytest.param("all", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SIMLM_STEPS)
def test_a_full_disk_for_outputs_is_reported(name: str, moments: str, calm: Calm, disk: Disk, tmp_path: Path) -> None:
    """The disk lacks one page for the largest file or, when all moments are tried, for each file in turn."""
    (root, _), step = calm, SIMLM_STEPS[name]
    outputs, log = disk.folder / "artifacts", tmp_path / "log"
    words = words_of(step, root, outputs)
    disk.resize(ROOM)
    for folder in step.output_paths(outputs).values():
        folder.mkdir(parents=True)
        (folder / MANIFEST).write_bytes(OLD)
    before, taken, (largest, rooms) = content(outputs), disk.taken(), rooms_without(root / step.name)
    for free in [largest] if moments == "one" else sorted(set(rooms)):
        disk.resize(taken + free)
        assert_reported(end_of(words, tmp_path / "work", log), log)
        assert content(outputs) == before and disk.taken() == taken, "half-written outputs"
    disk.resize(ROOM)
    assert end_of(words, tmp_path / "work", log) == 0, log.read_text()
    assert content(outputs) == made(step, root)


@pytest.mark.parametrize("growth", [4, pytest.param(1.3, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", KEEPS_WORK)
def test_a_full_disk_for_work_is_reported_and_resumed(
    name: str, growth: float, calm: Calm, disk: Disk, tmp_path: Path
) -> None:
    """The disk grows until there is enough room, and each run uses the work that the last one kept."""
    (root, _), step = calm, SIMLM_STEPS[name]
    outputs, work, log = tmp_path / "artifacts", disk.folder / "work", tmp_path / "log"
    words = words_of(step, root, outputs)
    outputs.mkdir()
    pages, kept = 1, Kept.of(work)
    while code := end_of(words, work, log):
        assert_reported(code, log)
        assert not content(outputs), "half-written outputs"
        before, kept = kept, Kept.of(work)
        assert kept.checkpoints >= before.checkpoints and kept.bytes >= before.bytes
        pages = int(pages * growth) + 1
        assert pages < ROOM
        disk.resize(pages)
    assert pages > 1, "it was never full"
    assert content(outputs) == made(step, root)
