"""The DVC operations that releases need: check that the workspace is complete; record, push and fetch artifacts."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import read_manifest, refuse_foreign
from stillhouse.core.context import say
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.core.remote.address import redact
from stillhouse.core.remote.dvc_source import fetch, of_a_remote
from stillhouse.releases.git import Git
from stillhouse.releases.objects import lacking_in_cache, lacking_on_remote, send
from stillhouse.releases.tags import Release

ALWAYS = "always changed"
"""DVC's status of a stage that runs every time; later stages depend on its output."""


@doing("comparing the artifacts with dvc.lock")
def refuse_unfinished(folder: Path) -> None:
    """Raises `InputError` if the artifacts do not match dvc.lock, because their provenance would then be unknown."""
    with _workspace(folder) as repo:
        changed = sorted(stage for stage, what in repo.status().items() if what != [ALWAYS])
    if changed:
        names = ", ".join(changed[:3])
        raise InputError(f"{names} in {folder} changed since the last run; run `dvc repro` first, then promote")


@doing("verifying the artifacts")
def refuse_damaged(folder: Path, paths: Mapping[str, str]) -> None:
    """Raises `InputError` with the file's name if an artifact's bytes are not those that its step wrote.

    DVC does not notice: it compares the size and time of a file that it knows, and accepts others unchecked.
    """
    for path in paths.values():
        read_manifest(folder / path)


@doing("recording the artifacts in dvc.lock")
def record(folder: Path) -> None:
    """Writes dvc.lock, from the stages of dvc.yaml, for artifacts that were made without `dvc repro`."""
    with _workspace(folder) as repo:
        repo.commit(force=True)


@doing("pushing the artifacts")
def push(folder: Path) -> None:
    """Pushes the workspace's data to its default remote. Skips what is already there.

    Files that DVC's cache has lost or damaged are restored from the workspace, whose artifacts the caller has checked.
    Raises `InputError` with the remedy if there is no remote, if it accepts nothing, or if it loses what it accepted.
    """
    with _workspace(folder) as repo:
        if not repo.config["core"].get("remote"):
            raise InputError(f"{folder} has no DVC remote to push data to; `dvc remote add --default NAME URL`")
        if lacking := lacking_in_cache(repo):
            say(f"DVC's cache lacks {len(lacking)} files of {_names(lacking)}; restoring them from the workspace")
            repo.commit(force=True)
        if lacking := lacking_on_remote(repo):
            send(repo, lacking)
        # DVC itself sends to a remote that keeps versions; it must rebuild its list of files to send (objects.py).
        repo.drop_data_index()
        repo.push()
        lacking = lacking_on_remote(repo)
    if lacking:
        raise InputError(
            f"the remote does not keep {len(lacking)} files of {_names(lacking)} of {folder}; is it full, or does "
            "something remove them? Nothing was released"
        )


def _names(lacking: Mapping[str, str]) -> str:
    return ", ".join(sorted(set(lacking.values())))


@doing("fetching the artifacts")
def fetch_release(git: Git, release: Release, target: Path, names: tuple[str, ...] = ()) -> dict[str, Path]:
    """Copies the artifacts of a release, or those of `names` that it has, to `target`/<name>.

    Raises `InputError` before anything is fetched if a destination holds something that no step wrote.
    """
    wanted = {name: path for name, path in release.paths.items() if not names or name in names}
    if target.is_file():
        raise InputError(f"{target} is a file; name a folder to fetch {release.name} into")
    for name in wanted:
        refuse_foreign(target / name, name)
    with _workspace(git.folder) as repo:  # its remotes, credentials and cache, which a copy of the repository lacks
        config = {
            "core": {key: repo.config["core"][key] for key in ("remote",) if key in repo.config["core"]},
            "remote": {name: dict(settings) for name, settings in repo.config["remote"].items()},
            "cache": {"dir": repo.cache.local_cache_dir},
        }
    top, found = git("rev-parse", "--show-toplevel"), {}
    for name, path in wanted.items():
        fetch(top, release.commit, f"{git.prefix}{path}", target / name, config)
        found[name] = target / name
    return found


@contextmanager
def _workspace(folder: Path) -> Iterator[Any]:
    """Opens the DVC repository of a folder; failures become an `InputError` that says what to check."""
    try:
        from dvc.exceptions import DvcException
        from dvc.repo import Repo
    except ImportError:
        raise InputError("releases need DVC: pip install 'stillhouse[dvc]'") from None
    logging.getLogger("dvc").setLevel(logging.ERROR)
    here = Path.cwd()
    os.chdir(folder)  # DVC reads dvc.yaml's templates relative to the current folder
    try:
        with Repo(".") as repo:
            _drop_cut_note(repo)
            yield repo
    except Exception as error:
        if not (isinstance(error, (DvcException, OSError)) or of_a_remote(error)):
            raise
        why = redact(str(error)).strip() or type(error).__name__
        raise InputError(
            f"DVC cannot do this in {folder}: {why}. Does the remote exist, and may this machine write there "
            "(bucket, credentials: in a pod the secret that data_secret names, for SSH ssh_secret, for Google's "
            "gcs_secret; the extras `stillhouse[s3]`, `[ssh]`, `[gcs]` or `[azure]`)? Nothing was released; you can "
            "repeat the command"
        ) from error
    finally:
        os.chdir(here)


def _drop_cut_note(repo: Any) -> None:
    """Removes DVC's record of readers and writers if a kill truncated it; DVC would refuse to work with it."""
    from dvc.lock import LockError, make_lock
    from dvc.rwlock import RWLOCK_FILE, RWLOCK_LOCK

    note = Path(repo.tmp_dir) / RWLOCK_FILE
    hardlink = repo.config["core"].get("hardlink_lock", False)
    with suppress(LockError), make_lock(str(note.with_name(RWLOCK_LOCK)), repo.tmp_dir, hardlink_lock=hardlink):
        if note.is_file() and not _is_json(note):
            note.unlink()


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


@doing("reading the provenance of the artifacts")
def artifacts_of(folder: Path, paths: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The entries of `release.json` for artifacts: path, Stillhouse's and DVC's digests, the code and its commit."""
    from stillhouse.releases.lineage import lineage

    return {name: {"path": path} | lineage(folder / path) for name, path in paths.items()}
