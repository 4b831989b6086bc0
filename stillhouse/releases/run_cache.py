"""DVC's run cache for one stage outside a checkout: restores what was done elsewhere, saves what was done here.

A key of the run cache consists of a stage's command, dependencies, parameters and output paths. A folder with this one
stage, its parameters and links to its dependencies therefore has the stage's key in a whole workspace. The data lie on
an ordinary DVC remote: `files/` holds files by their digest, `runs/` holds the entries of the run cache.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from stillhouse.remote.deadline import within

REMOTE = "run-cache"
SECONDS = 30.0
"""How long a remote that does not answer may delay a step. Transfers may take as long as they need."""
OF_RUNS = "md5-dos2unix"
"""DVC's name for the part of a remote that holds `runs/`."""
LOGGERS = ("dvc", "dvc_data", "dvc_objects")


@dataclass(frozen=True)
class Stage:
    """A stage as in dvc.yaml, the parameters that it names, and where its dependencies lie, by their paths."""

    name: str
    content: Mapping[str, Any]
    params: Mapping[str, Any]
    deps: Mapping[str, Path]


class Unsent(Exception):
    """Some files did not reach the remote."""


@dataclass
class RunCache:
    """The run cache at `url` for one stage, through a DVC workspace in `folder`, which must not exist yet.

    Problems with the remote raise exceptions of DVC or of a library behind it.
    """

    folder: Path
    url: str
    stage: Stage
    broken: bool = field(default=False, init=False)
    """Whether the remote has an entry for the stage but not all of its files."""
    taken: set[str] = field(default_factory=set, init=False)
    """The digests of the files that were restored."""
    damaged: list[str] = field(default_factory=list, init=False)
    """The names of damaged entries of the stage, which were ignored."""
    mended: list[str] = field(default_factory=list, init=False)
    """The digests of damaged files that `save` replaced."""

    def __post_init__(self) -> None:
        # By hand: DVC's own `init` writes outside the folder, where a pod may be read-only.
        (self.folder / ".dvc").mkdir(parents=True)
        (self.folder / ".dvc" / "config").write_text("[core]\n    no_scm = true\n", encoding="utf-8")
        stages = {"stages": {self.stage.name: dict(self.stage.content)}}
        for name, content in (("dvc.yaml", stages), ("params.yaml", dict(self.stage.params))):
            (self.folder / name).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        for path, place in self.stage.deps.items():
            self._link(path, place)

    def key(self) -> str:
        """The key of the stage, the same wherever the same stage has the same inputs."""
        with self._opened() as (_, stage):
            stage.save_deps()
            return _key(stage)

    def restore(self) -> dict[str, Path]:
        """Restores what the stage wrote elsewhere: its outputs by their paths in dvc.yaml; empty if nobody ran it
        before.

        Every file is checked against its digest. The files belong to DVC: copy them, do not change them.
        """
        from dvc.stage.cache import RunCacheNotFoundError

        with self._opened() as (repo, stage):
            stage.save_deps()
            stage.save_deps = lambda: None  # DVC's `restore` would read every dependency again
            remote = repo.cloud.get_remote_odb(None, "fetch", hash_name=OF_RUNS)
            known = within(SECONDS, lambda: _copy_entries(repo, stage, remote, send=False))
            self.damaged = _drop_damaged(repo, stage)
            for _ in range(known - len(self.damaged)):
                try:
                    repo.stage_cache.restore(stage, pull=True)
                except RunCacheNotFoundError:
                    _drop_newest(repo, stage)
                else:
                    self.taken = {entry.value for objects in stage.get_used_objs().values() for entry in objects}
                    return {out.def_path: Path(out.fs_path) for out in stage.outs}
            self.broken = known > 0
            return {}

    def save(self, outs: Mapping[str, Path]) -> None:
        """Sends what the stage wrote here, by its paths in dvc.yaml. The files themselves stay unchanged.

        The entry goes last, so that nobody finds it before its files. Raises `Unsent` if files did not arrive.
        """
        with self._opened() as (repo, stage):
            for path, place in outs.items():
                self._link(path, place)
            stage.save()
            stage.commit(relink=False)
            data, runs = (repo.cloud.get_remote_odb(None, "push", hash_name=name) for name in ("md5", OF_RUNS))
            within(SECONDS, lambda: data.fs.exists(data.path))
            for objects in stage.get_used_objs().values():
                if self.broken:
                    self.mended += _mend(repo.cache.local, data, {entry.value for entry in objects})
                failed = repo.cloud.push(objects).failed
                if failed:
                    raise Unsent(f"{len(failed)} of {len(objects)} files did not arrive")
            _copy_entries(repo, stage, runs, send=True)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        """The workspace's repository and the stage; DVC reads dvc.yaml relative to the current folder."""
        from dvc.repo import Repo

        internal = self.folder / ".dvc"
        config = {
            "core": {"remote": REMOTE, "analytics": False, "site_cache_dir": str(internal / "site")},
            # Verify what arrives: DVC would otherwise trust the files of a folder because they are protected.
            "remote": {REMOTE: {"url": self.url, "verify": True}},
            "cache": {"dir": str(internal / "cache"), "type": "hardlink,copy"},
        }
        here = Path.cwd()
        os.chdir(self.folder)
        try:
            with _hushed(), Repo(".", config=config) as repo, repo.lock:
                [stage] = repo.stage.collect(self.stage.name)
                yield repo, stage
        finally:
            os.chdir(here)

    def _link(self, path: str, place: Path) -> None:
        link = self.folder / path
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_dir() and not link.is_symlink():
            shutil.rmtree(link)  # restored before, but not usable
        link.unlink(missing_ok=True)
        link.symlink_to(place.absolute())


def _key(stage: Any) -> str:
    from dvc.stage.cache import _get_stage_hash

    return str(_get_stage_hash(stage))


def _copy_entries(repo: Any, stage: Any, remote: Any, *, send: bool) -> int:
    """Copies the stage's entries from the remote, or with `send` to it; returns how many there were.

    DVC's own `pull` of the run cache copies every entry of every stage, and its `push` does not report failures.
    """
    from dvc.fs import generic

    key = _key(stage)
    source, target = (repo.cache.legacy, remote) if send else (remote, repo.cache.legacy)
    places = [odb.fs.join(odb.path, "runs", key[:2], key) for odb in (source, target)]
    entries = list(source.fs.find(places[0])) if source.fs.exists(places[0]) else []
    for entry in entries:
        generic.copy(source.fs, entry, target.fs, target.fs.join(places[1], source.fs.name(entry)))
    return len(entries)


def _entries(repo: Any, stage: Any) -> list[Path]:
    """The stage's entries here. A report holds the step's duration, so each run of the same stage has its own entry."""
    key = _key(stage)
    return sorted((Path(repo.cache.legacy.path) / "runs" / key[:2] / key).glob("*"))


def _drop_damaged(repo: Any, stage: Any) -> list[str]:
    """Removes entries that do not match their names, which DVC does not check. Returns their names."""
    from dvc.stage.cache import _get_cache_hash
    from dvc.utils.serialize import load_yaml

    damaged = []
    for entry in _entries(repo, stage):
        try:
            is_sound = _get_cache_hash(load_yaml(entry)) == entry.name
        except Exception:  # damaged bytes may raise anything
            is_sound = False
        if not is_sound:
            entry.unlink()
            damaged.append(entry.name)
    return damaged


def _drop_newest(repo: Any, stage: Any) -> None:
    """Removes the entry that DVC tried and found missing or damaged files for; another entry's files may be intact."""
    if entries := _entries(repo, stage):
        max(entries, key=lambda entry: entry.stat().st_mtime_ns).unlink()


def _mend(local: Any, remote: Any, digests: set[str]) -> list[str]:
    """Replaces files on the remote that do not match their names; DVC would take them for sent.

    Returns their digests, except for files that did not exist at all.
    """
    from dvc_data.hashfile.db import HashFileDB
    from dvc_objects.errors import ObjectFormatError

    damaged = []
    for digest in sorted(digests):
        try:
            HashFileDB.check(remote, digest)  # a local remote's own check trusts protected files
        except (ObjectFormatError, FileNotFoundError) as error:
            damaged += [digest] if isinstance(error, ObjectFormatError) else []
            remote.add(local.oid_to_path(digest), local.fs, digest, check_exists=False)
    return damaged


@contextmanager
def _hushed() -> Iterator[None]:
    """Keeps DVC's own lines and stack traces out of the step's log, which reports failures in one sentence."""
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
