"""Data of a DVC repository at a revision: looks up its digest without reading it, or copies it.

The repository is a git URL or a folder; a path in it may be tracked by DVC or by git itself.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import redact, refuse_secret
from stillhouse.core.remote.ssh_command import refusal_by_git, same_ssh_as_git

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


def fetch(repo: str, revision: str, path: str, target: Path, config: Mapping[str, Any] | None = None) -> Found:
    """Copies a path of a repository at a revision to `target` and returns its commit and digest.

    `target` appears whole or stays as it was. `config` is DVC configuration that overrides the repository's own.
    Raises `InputError` for a repository, revision or path that does not exist, and for data that cannot be read from
    its remote.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.partial")
    _remove(unfinished)
    with _opened(repo, revision, path, config) as opened:
        found = _found(opened, repo, path)
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
        from dvc.scm import CloneError, RevError, SCMError
        from dvc_data.index import DataIndexDirError
    except ImportError:
        raise InputError("data of a DVC repository needs DVC: pip install 'stillhouse[dvc]'") from None
    refuse_secret(repo, "repo")
    logging.getLogger("dvc").setLevel(logging.ERROR)
    if not path.strip("/"):
        raise InputError(f"name the path of {repo} to use")
    at = f"{repo} at {revision or 'its default branch'}"
    reached = False
    try:
        # A clone even for a local folder, since its working tree may hold uncommitted changes.
        asked = {"rev": revision or None, "uninitialized": True, "config": dict(config or {})}
        with same_ssh_as_git(), Repo.open(_address(repo), **asked) as opened:
            reached = True
            yield opened
    except RevError as error:
        raise InputError(
            f"{repo} has no revision {revision!r} ({reason(error)}); name a branch, tag or commit"
        ) from None
    except Exception as error:
        if isinstance(error, (CloneError, SCMError)) or (not reached and _of_git(error)):
            raise InputError(
                f"cannot read the repository {repo} ({_of_connection(error, repo)}). Is its address right, and can "
                "this machine read it (key, known host, token; in a pod, the secret that git_secret names)?"
            ) from None
        known = (DvcException, DataIndexDirError, FileNotFoundError, PermissionError, ConnectionError)
        if not (isinstance(error, known) or of_a_remote(error)):
            raise
        raise InputError(
            f"cannot read {path} of {at}: {reason(error)}. Is its data pushed (`dvc push`), and can this machine "
            "read the remote (bucket, credentials; in a pod, the secret that data_secret names, for SSH "
            "ssh_secret, for Google gcs_secret)?"
        ) from None


def _of_git(error: Exception) -> bool:
    """Whether an error comes from the connection to a git repository. DVC passes such errors on unchanged.

    If a server hangs up, dulwich raises `HangupException`, or a broken pipe if it was still writing.
    """
    return type(error).__module__.split(".")[0] in {"dulwich", "asyncssh"} or isinstance(error, ConnectionError)


def _of_connection(error: BaseException, repo: str) -> str:
    """Why the git server was not reached: the message of `ssh`, which git shows but dulwich mostly leaves unread."""
    from dulwich.errors import HangupException

    innermost: BaseException = error
    while innermost.__cause__ is not None:
        innermost = innermost.__cause__
    if not isinstance(innermost, (HangupException, ConnectionError)):
        return reason(error)
    said = getattr(innermost, "stderr_lines", None)
    text = b"\n".join(said).decode(errors="replace") if said else refusal_by_git(repo)
    # Warnings, for instance about a changed host key, come first and the reason last.
    lines = [line.strip() for line in redact(text).splitlines() if line.strip()]
    return lines[-1] if lines else reason(error)


def of_a_remote(error: Exception) -> bool:
    """Whether an error comes from a library behind DVC's remotes. DVC passes such errors on unchanged."""
    return type(error).__module__.split(".")[0] in REMOTES


def _address(repo: str) -> str:
    folder = Path(repo).expanduser()
    if folder.is_dir():
        return f"file://{folder.resolve()}"
    if "://" not in repo and ":" not in repo:
        raise InputError(f"the repository {repo} does not exist; name a git URL or a folder")
    return repo


def reason(error: BaseException) -> str:
    """The first line of the innermost reason."""
    while error.__cause__ is not None:
        error = error.__cause__
    return redact(str(error)).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _replace(target: Path, content: Path) -> None:
    """Renames `content` to `target`. If killed in between, it leaves the old target as `.NAME.previous`."""
    previous = target.with_name(f".{target.name}.previous")
    if target.exists() or target.is_symlink():
        _remove(previous)
        target.rename(previous)
    content.rename(target)
    _remove(previous)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
