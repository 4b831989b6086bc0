"""Data of a DVC repository at a revision: looks up its digest without reading it, or copies it.

The repository is a git URL or a folder; a path in it may be tracked by DVC or by git itself.
"""

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stillhouse.core.artifacts import remove
from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import redact, refuse_secret
from stillhouse.core.remote.git import clone

REMOTES = frozenset(
    {"adlfs", "aiobotocore", "aiohttp", "asyncssh", "azure", "botocore", "gcsfs", "google", "s3fs", "sshfs"}
)


@dataclass(frozen=True)
class Found:
    """A path of a repository at a revision: the commit, and DVC's digest of the path ("" if git tracks it)."""

    repo: str
    path: str
    commit: str
    digest: str

    def plain(self) -> dict[str, str]:
        """As a manifest records it: without the repository's address, which does not identify the content."""
        return {"path": self.path, "commit": self.commit, "digest": self.digest}


def look_up(repo: str, revision: str, path: str) -> Found:
    """Looks up a path at a revision, without its data. Raises `InputError` if it does not exist."""
    with _opened(repo, revision, path) as opened:
        return _found(opened, repo, path)


def fetch(
    repo: str, revision: str, paths: Mapping[str, Path], config: Mapping[str, Any] | None = None
) -> dict[str, Found]:
    """Copies paths of a repository at a revision to their targets; returns their commit and digests.

    Each target appears whole or stays as it was. `config` is DVC configuration that overrides the repository's own.
    Raises `InputError` for a repository, revision or path that does not exist, and for data that cannot be read from
    its remote.
    """
    found = {}
    with _opened(repo, revision, ", ".join(paths), config) as opened:
        for path, target in paths.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = target.with_name(f".{target.name}.partial")
            remove(unfinished)
            found[path] = _found(opened, repo, path)
            opened.dvcfs.get(f"/{path.strip('/')}", str(unfinished), recursive=True)
            _replace(target, unfinished)
    return found


def _found(opened: Any, repo: str, path: str) -> Found:
    place = f"/{path.strip('/')}"
    if not opened.dvcfs.exists(place):
        there = sorted(Path(name).name for name in opened.dvcfs.ls("/", detail=False))
        raise InputError(f"{repo} has no {path!r} at revision {opened.get_rev()}; at its top level: {', '.join(there)}")
    entry = opened.dvcfs.info(place).get("dvc_info") or {}
    return Found(repo, path.strip("/"), opened.get_rev() or "", str(entry.get("md5") or ""))


@contextmanager
def _opened(repo: str, revision: str, path: str, config: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """Opens the repository with DVC. Errors in it become an `InputError` that says what to check."""
    try:
        from dvc.exceptions import DvcException
        from dvc.repo import Repo
        from dvc.scm import RevError
        from dvc_data.index import DataIndexDirError
    except ImportError:
        raise InputError("data of a DVC repository needs DVC: pip install 'stillhouse[dvc]'") from None
    known = (DvcException, DataIndexDirError, FileNotFoundError, PermissionError, ConnectionError)
    refuse_secret(repo, "repo")
    logging.getLogger("dvc").setLevel(logging.ERROR)
    if not path.strip("/"):
        raise InputError(f"name the path of {repo} to use")
    with TemporaryDirectory() as place:
        # A clone even for a local folder, since its working tree may hold uncommitted changes: DVC clones an address.
        asked = {"rev": revision or None, "uninitialized": True, "config": dict(config or {})}
        address = _address(repo, Path(place) / "clone")
        try:
            with Repo.open(address, **asked) as opened:
                yield opened
        except RevError as error:
            raise InputError(
                f"{repo} has no revision {revision!r} ({reason(error)}); name a branch, tag or commit"
            ) from None
        except Exception as error:
            if not (isinstance(error, known) or of_a_remote(error)):
                raise
            raise InputError(
                f"cannot read {path} of {repo} at {revision or 'its default branch'}: {reason(error)}. Is its data "
                "pushed (`dvc push`), and can this machine read the remote (bucket, credentials; in a pod, the secret "
                "that data_secret names, for SSH ssh_secret, for Google gcs_secret)?"
            ) from None
        finally:
            _forget(address)


def _forget(address: str) -> None:
    """Removes DVC's own clone and cache of an address, which it would leave in the folder for temporary files."""
    from dvc.repo.open_repo import CACHE_DIRS, CLONES

    for place in (CLONES.pop(address, ("",))[0], CACHE_DIRS.pop(address, "")):
        if place:
            shutil.rmtree(place, ignore_errors=True)


def of_a_remote(error: Exception) -> bool:
    """Whether an error comes from a library behind DVC's remotes. DVC passes such errors on unchanged."""
    return type(error).__module__.split(".")[0] in REMOTES


def _address(repo: str, place: Path) -> str:
    """The address of a local folder, or of a clone of a remote repository, which is made at `place`."""
    folder = Path(repo).expanduser()
    if folder.is_dir():
        return f"file://{folder.resolve()}"
    if "://" not in repo and ":" not in repo:
        raise InputError(f"the repository {repo} does not exist; name a git URL or a folder")
    clone(repo, place, "--bare")
    return f"file://{place}"


def reason(error: BaseException) -> str:
    """The first line of the innermost reason."""
    while error.__cause__ is not None:
        error = error.__cause__
    return redact(str(error)).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _replace(target: Path, content: Path) -> None:
    """Renames `content` to `target`. If killed in between, it leaves the old target as `.NAME.previous`."""
    previous = target.with_name(f".{target.name}.previous")
    if target.exists() or target.is_symlink():
        remove(previous)
        target.rename(previous)
    content.rename(target)
    remove(previous)
