"""The objects that DVC makes of outputs: each whole in the cache, and each there on the remote.

DVC takes a protected file of its cache for whole, only warns of one that the cache has lost, and takes a folder for
sent where the remote has the list of its files. What a push is to send it keeps in a list too, and one that was killed
while it made that list sends a part from then on. So a release is looked at, and sent, file by file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

LIST = ".dir"
"""What the digest of a folder ends in: the object is the list of the folder's files."""
MD5 = "md5"


def lacking_in_cache(repo: Any) -> dict[str, str]:
    """Objects that the cache has lost or that are not what their names say, digest → output. The latter are removed.

    Every file is read. Of a folder whose list is lacking the list alone is named.
    """
    lacking = {}
    for digest, output in _objects(repo).items():
        if not _is_whole(repo, digest):
            _in_cache(repo, digest).unlink(missing_ok=True)
            lacking[digest] = output
    return lacking


def lacking_on_remote(repo: Any) -> dict[str, str]:
    """Objects that the remote has not, or not in their length, digest → output.

    None of a remote that keeps versions by itself (`version_aware`), which has no objects.
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
    """Sends objects to the remote, whatever it has in their places; lists of files last, as DVC does."""
    remote, lists = repo.cloud.get_remote_odb(), {digest for digest in digests if digest.endswith(LIST)}
    for some in (set(digests) - lists, lists):
        if some:
            paths = [str(_in_cache(repo, digest)) for digest in some]
            remote.add(paths, repo.cache.local.fs, list(some), check_exists=False, batch_size=remote.fs.jobs)


def _objects(repo: Any) -> dict[str, str]:
    """Digest → output, of all outputs that are recorded and kept by DVC: the files of a folder, then their list."""
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
    """Whether the cache has an object, and it is what its name says."""
    path = _in_cache(repo, digest)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, MD5).hexdigest() == digest.removesuffix(LIST)
