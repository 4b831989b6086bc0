"""What releases ask of DVC: is the workspace whole, record what was made, push it, and fetch what was released."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stillhouse.artifacts import read_manifest, refuse_foreign
from stillhouse.errors import InputError
from stillhouse.versions.address import redact
from stillhouse.versions.dvc_source import fetch, of_a_remote
from stillhouse.versions.git import Git
from stillhouse.versions.releases import Release

ALWAYS = "always changed"
"""What DVC says of a stage that runs each time; its output is what later stages go by."""


def refuse_unfinished(folder: Path) -> None:
    """Raises `InputError` when the artifacts are not those of dvc.lock: then nobody could say how they were made."""
    with _workspace(folder) as repo:
        changed = sorted(stage for stage, what in repo.status().items() if what != [ALWAYS])
    if changed:
        names = ", ".join(changed[:3])
        raise InputError(f"{names} in {folder} changed since it was run; `dvc repro` first, then promote")


def refuse_damaged(folder: Path, paths: Mapping[str, str]) -> None:
    """Raises `InputError` that names the file where an artifact's bytes are not those that its step wrote.

    DVC does not look: it goes by size and time of a file that it knows, and takes one that it does not know as it is.
    """
    for path in paths.values():
        read_manifest(folder / path)


def record(folder: Path) -> None:
    """Writes dvc.lock for artifacts that something else than `dvc repro` made, by the stages of dvc.yaml."""
    with _workspace(folder) as repo:
        repo.commit(force=True)


def push(folder: Path) -> None:
    """Pushes the workspace's data to its default remote, and the run cache. What is there already is not sent again.

    Raises `InputError` with the remedy where there is no remote, where it takes nothing, and where it lacks a file
    afterwards: DVC itself only warns of a file that its cache has lost.
    """
    with _workspace(folder) as repo:
        if not repo.config["core"].get("remote"):
            raise InputError(f"{folder} has no DVC remote to push data to; `dvc remote add --default NAME URL`")
        # DVC keeps a list of what a push is to send; one that was killed while it made the list left a part of it,
        # by which the next push would send that part alone and call it all.
        repo.drop_data_index()
        repo.push(run_cache=True)
        lacking = _not_on_remote(repo)
    if lacking:
        raise InputError(
            f"{lacking[0]} of {folder} did not reach the remote ({len(lacking)} such): DVC's cache has lost a file of "
            "it. `dvc commit --force` puts it there again; then repeat the command. Nothing was released"
        )


def _not_on_remote(repo: Any) -> list[str]:
    """The outputs that the remote does not hold. DVC sends the list of a folder's files after them all."""
    held = {out.hash_info.value: out.def_path for out in repo.index.outs if out.use_cache and out.can_push}
    wanted = [digest for digest in held if digest]
    there = repo.cloud.get_remote_odb(None, "push").oids_exist(wanted)
    return sorted(held[digest] for digest in set(wanted).difference(there))


def fetch_release(git: Git, release: Release, target: Path, names: tuple[str, ...] = ()) -> dict[str, Path]:
    """Copies artifacts of a release, all or those of `names` that it has, to `target`/<name>.

    Raises `InputError` before anything is fetched where one of these places holds something that no step wrote.
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
    """The DVC repository of a folder; failures become `InputError` with what to look at."""
    try:
        from dvc.exceptions import DvcException
        from dvc.repo import Repo
    except ImportError:
        raise InputError("releases need DVC: pip install 'stillhouse[platform]'") from None
    logging.getLogger("dvc").setLevel(logging.ERROR)
    here = Path.cwd()
    os.chdir(folder)  # DVC reads dvc.yaml's templates from where it is called
    try:
        with Repo(".") as repo:
            yield repo
    except Exception as error:
        if not (isinstance(error, (DvcException, OSError)) or of_a_remote(error)):
            raise
        told = redact(str(error)).strip() or type(error).__name__
        raise InputError(
            f"DVC cannot do this in {folder}: {told}. Does the remote exist, and may this machine write there "
            "(bucket, credentials: in a pod the secret that data_secret names, for SSH ssh_secret, for Google's "
            "gcs_secret; the extras `stillhouse[s3]`, `[ssh]` or `[gcs]`)? Nothing was released; the same command may "
            "be repeated"
        ) from error
    finally:
        os.chdir(here)


def artifacts_of(folder: Path, paths: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """What `release.json` says of every artifact: its path, Stillhouse's digest and DVC's, the code and its commit."""
    from stillhouse.versions.lineage import lineage

    found = {}
    for name, path in paths.items():
        carried = lineage(folder / path)
        found[name] = {"path": path} | {
            key: carried[key] for key in ("digest", "dvc", "code", "revision", "parameters")
        }
    return found
