"""DVC's run cache for one stage outside a checkout: restore what was done elsewhere, save what was done here.

A key of the run cache is made of a stage's command, dependencies, parameters and the paths of its outputs. So a folder
with this one stage, its parameters and links to its dependencies has the key that the stage has in a whole workspace.
The data lie on a DVC remote, as everywhere: `files/` holds files by their digest, `runs/` what was done.
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
"""How long a remote that does not answer may hold a step up. What it answers may take as long as it takes."""
OF_RUNS = "md5-dos2unix"
"""The part of a remote that holds `runs/`, as DVC calls it."""
LOGGERS = ("dvc", "dvc_data", "dvc_objects")


@dataclass(frozen=True)
class Stage:
    """A stage as dvc.yaml has it, the parameters that it names, and where its dependencies lie, by their paths."""

    name: str
    content: Mapping[str, Any]
    params: Mapping[str, Any]
    deps: Mapping[str, Path]


class Unsent(Exception):
    """Some files did not reach the remote."""


@dataclass
class RunCache:
    """The run cache at `url` for one stage, by a workspace of DVC in `folder`, which must not exist yet.

    Whatever is wrong with the remote comes as an exception of DVC or of a library behind it.
    """

    folder: Path
    url: str
    stage: Stage
    broken: bool = field(default=False, init=False)
    """Whether the remote knows of the stage but did not give all that belongs to it."""
    taken: set[str] = field(default_factory=set, init=False)
    """The digests of the files that were restored."""
    damaged: list[str] = field(default_factory=list, init=False)
    """The names of entries of the stage that are not what their names say: they were not looked at."""
    mended: list[str] = field(default_factory=list, init=False)
    """The digests of files that were not what their names say, and that `save` replaced."""

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
        """The key of the stage, which is the same wherever it is the same stage of the same inputs."""
        with self._opened() as (_, stage):
            stage.save_deps()
            return _key(stage)

    def restore(self) -> dict[str, Path]:
        """What the stage wrote elsewhere: its outputs by their paths in dvc.yaml; empty where nobody did it before.

        Every file is checked against its digest. The files are DVC's own: they are to be copied, not changed.
        """
        from dvc.stage.cache import RunCacheNotFoundError

        with self._opened() as (repo, stage):
            stage.save_deps()
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

        What was done goes last, so that nobody finds it before its files. Raises `Unsent` where files did not arrive.
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
        """The workspace's repository and the stage; DVC reads dvc.yaml from where it is called."""
        from dvc.repo import Repo

        internal = self.folder / ".dvc"
        config = {
            "core": {"remote": REMOTE, "analytics": False, "site_cache_dir": str(internal / "site")},
            # Checked as they come: a folder's files are protected, which DVC elsewhere takes for a proof.
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
            shutil.rmtree(link)  # restored, and found to be something else
        link.unlink(missing_ok=True)
        link.symlink_to(place.absolute())


def _key(stage: Any) -> str:
    from dvc.stage.cache import _get_stage_hash

    return str(_get_stage_hash(stage))


def _copy_entries(repo: Any, stage: Any, remote: Any, *, send: bool) -> int:
    """Copies what is known of this stage from the remote, or with `send` to it; how many entries there were.

    DVC's own `pull` of the run cache copies all that anybody ever did, and its `push` says nothing of a failure.
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
    """What is known here of the stage. A report says how long the step took: who did it too has another entry."""
    key = _key(stage)
    return sorted((Path(repo.cache.legacy.path) / "runs" / key[:2] / key).glob("*"))


def _drop_damaged(repo: Any, stage: Any) -> list[str]:
    """Forgets the entries that are not what their names say, which DVC does not look at. Returns their names."""
    from dvc.stage.cache import _get_cache_hash
    from dvc.utils.serialize import load_yaml

    damaged = []
    for entry in _entries(repo, stage):
        try:
            is_sound = _get_cache_hash(load_yaml(entry)) == entry.name
        except Exception:  # whatever the bytes make of YAML, or of an entry
            is_sound = False
        if not is_sound:
            entry.unlink()
            damaged.append(entry.name)
    return damaged


def _drop_newest(repo: Any, stage: Any) -> None:
    """Forgets the entry that DVC looked at and found files missing or damaged: the files of another may be whole."""
    if entries := _entries(repo, stage):
        max(entries, key=lambda entry: entry.stat().st_mtime_ns).unlink()


def _mend(local: Any, remote: Any, digests: set[str]) -> list[str]:
    """Replaces files of the remote whose content is not what their names say; DVC would take them for sent.

    Returns their digests; of one that is not there at all nothing needs to be said.
    """
    from dvc_data.hashfile.db import HashFileDB
    from dvc_objects.errors import ObjectFormatError

    damaged = []
    for digest in sorted(digests):
        try:
            HashFileDB.check(remote, digest)  # that of a folder trusts a protected file
        except (ObjectFormatError, FileNotFoundError) as error:
            damaged += [digest] if isinstance(error, ObjectFormatError) else []
            remote.add(local.oid_to_path(digest), local.fs, digest, check_exists=False)
    return damaged


@contextmanager
def _hushed() -> Iterator[None]:
    """Keeps DVC's own lines and stack traces out of the step's log; what fails is reported there in a sentence."""
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
