"""DVC's objects of the outputs: each must be intact in the cache and present on the remote.

DVC takes a protected file in its cache for intact, only warns about one that the cache has lost, and takes a folder for
sent if the remote has the list of its files. It also keeps a list of what a push has to send, and after a kill during
the making of that list it sends only a part. So releases check and send every file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

LIST = ".dir"
"""The suffix of a folder's digest: the object is the list of the folder's files."""
MD5 = "md5"


def lacking_in_cache(repo: Any) -> dict[str, str]:
    """Objects that the cache has lost or that do not match their digests, digest → output. The latter are removed.

    Reads every file. If a folder's list is missing, only the list is named.
    """
    lacking = {}
    for digest, output in _objects(repo).items():
        if not _is_whole(repo, digest):
            _in_cache(repo, digest).unlink(missing_ok=True)
            lacking[digest] = output
    return lacking


def lacking_on_remote(repo: Any) -> dict[str, str]:
    """Objects that the remote lacks or has with another length, digest → output.

    Empty for a remote that keeps versions itself (`version_aware`), since it has no objects.
    """
    if _keeps_versions(repo):
        return {}
    remote, objects = repo.cloud.get_remote_odb(), _objects(repo)
    found = remote.fs.info([remote.oid_to_path(digest) for digest in objects], return_exceptions=True)
    lacking = {}
    for (digest, output), about in zip(objects.items(), found):
        if isinstance(about, Exception) and not isinstance(about, FileNotFoundError):
            raise about
        if isinstance(about, FileNotFoundError) or about["size"] != _in_cache(repo, digest).stat().st_size:
            lacking[digest] = output
    return lacking


def send(repo: Any, digests: Collection[str]) -> None:
    """Sends objects to the remote and replaces what it has in their places; lists of files go last, as in DVC."""
    remote, lists = repo.cloud.get_remote_odb(), {digest for digest in digests if digest.endswith(LIST)}
    for some in (set(digests) - lists, lists):
        if some:
            paths = [str(_in_cache(repo, digest)) for digest in some]
            remote.add(paths, repo.cache.local.fs, list(some), check_exists=False, batch_size=remote.fs.jobs)


def _objects(repo: Any) -> dict[str, str]:
    """Digest → output of everything that DVC records and keeps: the files of a folder, then their list."""
    objects: dict[str, str] = {}
    for out in repo.index.outs:
        if not (out.use_cache and out.can_push and out.hash_info and out.hash_info.name == MD5):
            continue
        digest = str(out.hash_info.value)
        if digest.endswith(LIST) and _is_whole(repo, digest):
            entries = json.loads(_in_cache(repo, digest).read_bytes())
            objects |= {entry[MD5]: out.def_path for entry in entries}
        objects[digest] = out.def_path
    return objects


def _keeps_versions(repo: Any) -> bool:
    remote = repo.cloud.get_remote()
    return bool(remote.worktree or remote.fs.version_aware)


def _in_cache(repo: Any, digest: str) -> Path:
    return Path(repo.cache.local.oid_to_path(digest))


def _is_whole(repo: Any, digest: str) -> bool:
    """Whether the cache has an object whose content matches its digest."""
    path = _in_cache(repo, digest)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, MD5).hexdigest() == digest.removesuffix(LIST)
