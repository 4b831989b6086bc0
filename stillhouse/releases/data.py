"""The DVC operations that releases need: check that the workspace is complete; record, push and fetch artifacts."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import read_manifest, refuse_foreign
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.core.remote.address import redact
from stillhouse.core.remote.dvc_source import fetch, of_a_remote
from stillhouse.core.remote.git import Git
from stillhouse.releases.tags import Release

REVISION = "STILLHOUSE_REVISION"
"""Environment variable with the git commit of the code; an image sets it."""
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

    DVC only warns about files that its cache has lost, and takes a folder for sent if the remote has the list of its
    files. So what the remote lacks is restored from the workspace, whose artifacts the caller has checked, and sent.
    Raises `InputError` with the remedy if there is no remote, or if it does not take or keep the data.
    """
    with _workspace(folder) as repo:
        if not repo.config["core"].get("remote"):
            raise InputError(f"{folder} has no DVC remote to push data to; `dvc remote add --default NAME URL`")
        repo.drop_data_index()  # after a kill during a push, DVC would send only what its list holds
        repo.push()
        lacking = _lacking(repo)
        if lacking:
            repo.commit(force=True)
            _send(repo, _lacking(repo))
            lacking = _lacking(repo)
    if lacking:
        raise InputError(
            f"the remote does not keep {len(lacking)} files of {', '.join(sorted(set(lacking.values())))} of {folder}; "
            "is it full, or does something remove them? Nothing was released"
        )


def _lacking(repo: Any) -> dict[str, str]:
    """What the remote lacks, by its digest, with the output's path; nothing for a remote that keeps versions itself."""
    remote = repo.cloud.get_remote()
    if remote.worktree or remote.fs.version_aware:
        return {}
    objects, unknown = dict[str, str](), dict[str, str]()
    for out in repo.index.outs:
        if not (out.use_cache and out.can_push and out.hash_info and out.hash_info.name == "md5"):
            continue
        files = out.get_obj() if out.hash_info.isdir else ()
        objects |= {file.value: out.def_path for _, _, file in files or ()}
        (unknown if files is None else objects)[out.hash_info.value] = out.def_path
    there = set(repo.cloud.get_remote_odb().oids_exist(list(objects)))
    return {digest: path for digest, path in objects.items() if digest not in there} | unknown


def _send(repo: Any, digests: Iterable[str]) -> None:
    """Sends objects of the cache to the remote; lists of files go last, as in DVC."""
    remote, cache = repo.cloud.get_remote_odb(), repo.cache.local
    for digest in sorted(digests, key=lambda digest: digest.endswith(".dir")):
        remote.add(cache.oid_to_path(digest), cache.fs, digest, check_exists=False)


@doing("fetching the artifacts")
def fetch_release(git: Git, release: Release, target: Path, names: tuple[str, ...] = ()) -> dict[str, Path]:
    """Copies the artifacts of a release, or those of `names` that it has, to `target`/<name>.

    Raises `InputError` before anything is fetched if a destination holds something that no step wrote.
    """
    wanted = {name: path for name, path in release.paths.items() if not names or name in names}
    for name in wanted:
        refuse_foreign(target / name, name)
    with _workspace(git.folder) as repo:  # its remotes, credentials and cache, which a copy of the repository lacks
        config = {
            "core": {key: repo.config["core"][key] for key in ("remote",) if key in repo.config["core"]},
            "remote": {name: dict(settings) for name, settings in repo.config["remote"].items()},
            "cache": {"dir": repo.cache.local_cache_dir},
        }
    places = {f"{git.prefix}{path}": target / name for name, path in wanted.items()}
    fetch(git("rev-parse", "--show-toplevel"), release.commit, places, config)
    return {name: target / name for name in wanted}


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


@doing("reading the provenance of the artifacts")
def artifacts_of(folder: Path, paths: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The entries of `release.json` for artifacts: path, digest, and the commit of the code if it is known."""
    revision = os.environ.get(REVISION, "")
    digests = {name: read_manifest(folder / path, verify=False).digest for name, path in paths.items()}
    return {name: {"path": path, "digest": digests[name], "revision": revision} for name, path in paths.items()}
