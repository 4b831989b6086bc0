"""A task is killed while it writes to the run cache or reads from it, or a file there is damaged.

In every case the run cache only serves what an undisturbed task made.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import signal
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import yaml
from pods import Pod, content

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "survival"))
from kills import SEED, land_kills

from stillhouse.releases import run_cache
from stillhouse.releases.run_cache import RunCache

FORKS = multiprocessing.get_context("forkserver")
OUTPUTS = ("run", "negatives")
LONG_ENOUGH = 600.0
"""Seconds, enough for a busy CPU."""


def work(laptop: Path, folder: Path, cache: Path, phase: str, mark: Path) -> None:
    """Run the component `bm25`, and create `mark` when it starts to `save` or `restore`."""
    run_cache.SECONDS = LONG_ENOUGH
    whole = getattr(RunCache, phase)

    def marked(*arguments: object) -> object:
        mark.touch()
        return whole(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunCache, phase, marked)
        Pod(laptop, folder, cache, patch).run("bm25")


def begin(laptop: Path, folder: Path, cache: Path, phase: str) -> BaseProcess:
    """Start a pod in its own process, and return when it reaches a phase of its work with the run cache."""
    folder.mkdir()
    process = FORKS.Process(target=work, args=(laptop, folder, cache, phase, folder / "mark"))
    process.start()
    while process.is_alive() and not (folder / "mark").exists():
        time.sleep(0.001)
    return process


def made(folder: Path) -> dict[str, dict[str, bytes]]:
    """Return the files of each output that a pod wrote."""
    return {name: content(folder / "pod-1" / name) for name in OUTPUTS if (folder / "pod-1" / name).exists()}


def stored_by_their_names(cache: Path) -> bool:
    """Return whether every file of a remote has the MD5 of its name. A file in transfer has another kind of name."""
    from stillhouse.releases.lineage import dvc_digest

    objects = [path for path in (cache / "files" / "md5").glob("??/*") if len(path.name.removesuffix(".dir")) == 30]
    return all(path.parent.name + path.name.removesuffix(".dir") == dvc_digest(path) for path in objects)


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["save", "restore"])
def test_a_killed_task_leaves_no_partial_entry_in_the_run_cache(
    phase: str, laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_cache, "SECONDS", LONG_ENOUGH)
    monkeypatch.delenv("STILLHOUSE_QUIET", raising=False)
    shutil.copytree(laptop.parent / "shelf", tmp_path / "empty")
    shutil.copytree(tmp_path / "empty", tmp_path / "filled")
    begin(laptop, tmp_path / "first", tmp_path / "filled", "save").join()
    expected = made(tmp_path / "first")
    assert expected.keys() == set(OUTPUTS)
    shelf = tmp_path / ("empty" if phase == "save" else "filled")
    shutil.copytree(shelf, tmp_path / "calm-shelf")
    calm = begin(laptop, tmp_path / "calm", tmp_path / "calm-shelf", phase)
    started = time.monotonic()
    calm.join()
    seconds = time.monotonic() - started
    number = 0

    def kill(moment: float) -> bool:
        nonlocal number
        number += 1
        place = tmp_path / f"kill-{number}"
        place.mkdir()
        cache = Path(shutil.copytree(shelf, place / "shelf"))
        process = begin(laptop, place / "killed", cache, phase)
        process.join(moment)
        process.kill()
        process.join()
        for name, files in made(place / "killed").items():  # an output is missing or complete
            assert files == expected[name]
        assert stored_by_their_names(cache)
        for again in ("second", "third"):
            capsys.readouterr()
            (place / again).mkdir()
            Pod(laptop, place / again, cache, monkeypatch).run("bm25")
            assert made(place / again) == expected
        assert "[bm25] taken from the run cache" in capsys.readouterr().err, "by now it is there, whole"
        return process.exitcode == -signal.SIGKILL

    land_kills(f"run cache {phase}", seconds, kill)


def flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.chmod(0o644)
    path.write_bytes(data)


def cut(path: Path, chance: random.Random) -> None:
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def test_a_damaged_file_is_found_by_its_digest_named_and_not_used(
    laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any bit of any file may be damaged, including the entry that records the stage."""
    monkeypatch.setattr(run_cache, "SECONDS", LONG_ENOUGH)
    monkeypatch.delenv("STILLHOUSE_QUIET", raising=False)
    shutil.copytree(laptop.parent / "shelf", tmp_path / "shelf")
    before = set(content(tmp_path / "shelf"))
    Pod(laptop, tmp_path / "first", tmp_path / "shelf", monkeypatch).run("bm25")
    expected = made(tmp_path / "first")
    stored = sorted(set(content(tmp_path / "shelf")) - before)
    print(f"seed {SEED}")
    chance = random.Random(f"{SEED} damage")
    entries = [name for name in stored if name.startswith("runs/")]
    for number, name in enumerate([*stored, *entries * 2]):
        damage = (flip, cut)[number % 2] if number < len(stored) else flip
        place = tmp_path / f"damaged-{number}"
        cache = Path(shutil.copytree(tmp_path / "shelf", place / "shelf"))
        damage(cache / name, chance)
        capsys.readouterr()
        Pod(laptop, place, cache, monkeypatch).run("bm25")
        assert made(place) == expected, (name, damage)
        logged = capsys.readouterr().err
        digest = "".join(name.split("/")[-2:]) if name.startswith("files/") else name.split("/")[-1]
        if is_report(tmp_path / "shelf" / name):  # a new report has other times
            assert "damaged there; computing it here" in logged
        elif name.startswith("files/"):
            assert f"replaced damaged files there: {digest}" in logged, (name, damage, logged)
            assert (cache / name).read_bytes() == (tmp_path / "shelf" / name).read_bytes()
        else:
            assert f"damaged there ({digest}); computing it here" in logged or is_of_no_matter(cache / name), logged
        capsys.readouterr()
        again = Pod(laptop, place / "again", cache, monkeypatch).run("bm25")
        assert "[bm25] taken from the run cache" in capsys.readouterr().err, (name, damage)
        assert {output: content(again[output].path) for output in OUTPUTS} == expected


def is_report(path: Path) -> bool:
    return path.read_bytes().startswith(b"{") and "summary" in json.loads(path.read_bytes())


def is_of_no_matter(entry: Path) -> bool:
    """Return whether a damaged entry still has its key: sizes do not count, and YAML has many spellings."""
    from dvc.stage.cache import _get_cache_hash

    return _get_cache_hash(yaml.safe_load(entry.read_bytes())) == entry.name
