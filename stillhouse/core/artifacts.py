"""Artifact folders: written whole or not at all, with a manifest that records what each was made from.

Every folder that a step writes holds `manifest.json`: the step, its settings, the digest of every input and every file,
facts such as counts, and a seal, which is the digest of all of these. It holds no time, host name or absolute path, so
the same inputs give the same bytes. An artifact's digest is the SHA-256 of its manifest, which covers all its files.
The seal distinguishes a damaged manifest from one that a step wrote.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.core.lock import only_process

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """The content of `manifest.json`."""

    step: str
    config: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    version: int = 1
    digest: str = ""


def digest_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_json(value: Any) -> str:
    """The digest of plain data, whatever the order of its keys."""
    return digest_bytes(json.dumps(value, sort_keys=True, ensure_ascii=False).encode())


def write_json(path: Path, value: Any) -> None:
    path.write_bytes(_json_bytes(value))


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def digest_files(folder: Path) -> dict[str, str]:
    """The digest of every file below a folder except its manifest, sorted by relative POSIX path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
    return {path.relative_to(folder).as_posix(): digest_file(path) for path in paths}


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yields a folder beside `path` to write into, and renames it to `path` once the block ends without an error.

    A reader sees the old folder, no folder, or the whole new one. A killed process leaves `path` as it was, and a
    `.NAME.partial` folder that the next run removes. Raises `InputError` while another process writes to `path`.
    """
    with whole_folders([path]) as [staging]:
        yield staging


@contextmanager
def whole_folders(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """`whole_folder` for folders that belong together: a killed process never leaves new ones beside old ones.

    All old folders are set aside before the first new one takes its place. After a kill in between, the next run
    restores only the first: for the others it cannot know whether a new one is already in place.
    """
    paths = [Path(path) for path in paths]
    with suppress(FileNotFoundError):  # the current folder was removed
        here = Path.cwd()
        if {here, *here.parents} & {path.resolve() for path in paths}:
            raise InputError("the current folder would be replaced; name another one, which need not exist")
    with ExitStack() as locked:
        for path in paths:
            locked.enter_context(only_process(path))
        for path in paths:
            previous = _beside(path, "previous")
            if previous.exists() and not path.exists():
                previous.rename(path)
            for kind in ("partial", "previous", "replaced"):
                remove(_beside(path, kind))
        stagings = [_beside(path, "partial") for path in paths]
        try:
            for staging in stagings:
                staging.mkdir()
            yield stagings
            for staging in stagings:
                flush(staging)
        except BaseException:
            for staging in stagings:
                remove(staging)
            raise
        aside = [_beside(path, "replaced" if number else "previous") for number, path in enumerate(paths)]
        for path, old in zip(paths, aside):
            if path.exists():
                path.rename(old)
        for path, staging in zip(paths, stagings):
            staging.rename(path)
        for parent in {path.parent for path in paths}:
            sync(parent)  # before the old ones are removed, in case of a power cut
        for old in aside:
            remove(old)


def write_whole_json(path: Path, value: Any) -> None:
    write_whole(path, _json_bytes(value).decode())


def write_whole(path: Path, text: str) -> None:
    """Writes a text beside `path` and renames it: a reader of `path` sees the old text, no file, or the whole new text.

    A special file such as /dev/stdout is written in place.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_text(text, encoding="utf-8")
        return
    partial = _beside(path, "partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # the file is whole even if the power fails after the rename
        partial.replace(path)
        sync(path.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def _beside(path: Path, kind: str) -> Path:
    path = path.absolute()
    return path.with_name(f".{path.name}.{kind}")


def remove(path: Path) -> None:
    """Removes a file, a folder or a link, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def flush(folder: Path) -> None:
    """Flushes every file and folder to disk, so that the folder is whole even if the power fails after the rename."""
    for path in [*folder.rglob("*"), folder]:
        if path.is_file() or path.is_dir():
            sync(path)


def sync(path: Path) -> None:
    """Flushes a file, or the names in a folder, to disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        # Some network file systems cannot sync folders.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(number)


def refuse_foreign(path: Path, name: str) -> None:
    """Raises `InputError` if `path` holds something that no step wrote; `name` begins the message.

    A step's own folder holds a manifest, and only files that the manifest lists. Their content is not checked, since a
    damaged file is made again.
    """
    refuse_file_above(path)
    if not os.path.lexists(path) or (path.is_dir() and not path.is_symlink() and not any(path.iterdir())):
        return
    listed = None if path.is_symlink() else _listed_files(path / MANIFEST)
    if listed is None:
        raise InputError(f"{name}: {path} exists and no step wrote it; choose another folder, or move it away")
    for found in sorted(path.rglob("*")):
        inner = found.relative_to(path).as_posix()
        if (found.is_symlink() or not found.is_dir()) and inner not in listed:
            raise InputError(
                f"{name}: {path} holds {inner}, which no step wrote; move it away, or choose another folder"
            )


def _listed_files(path: Path) -> set[str] | None:
    """The files that a manifest lists, and the manifest itself; None if `path` is not a manifest."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_bytes())
        known = content.keys() >= {"step", "config", "inputs", "files", "facts"}
        return {MANIFEST, *content["files"]} if known else None
    except (ValueError, TypeError, AttributeError):
        return None


def refuse_file_above(path: Path) -> None:
    """Raises `InputError` if one of the folders that `path` would lie in is a file."""
    above = next((above for above in path.parents if os.path.lexists(above)), Path())
    if not above.is_dir():
        raise InputError(f"{above} is not a folder, so nothing can be written to {path}; choose another place")


def write_manifest(
    folder: Path,
    step: str,
    config: Mapping[str, Any],
    inputs: Mapping[str, str],
    facts: Mapping[str, Any],
    version: int = 1,
) -> None:
    """Writes the manifest of a finished folder. `inputs` maps each input's name to its digest.

    `version` is the step's; a manifest without one is of version 1.
    """
    content: dict[str, Any] = {"step": step, "config": dict(config), "inputs": dict(inputs), "facts": dict(facts)}
    content |= {"version": version} if version > 1 else {}
    (folder / MANIFEST).write_bytes(_sealed(content | {"files": digest_files(folder)}))


def _sealed(content: Mapping[str, Any]) -> bytes:
    """The bytes of a manifest. Each content has exactly one form, so that any changed bit is noticed."""
    plain = json.loads(_json_bytes(content))  # turns the keys of mappings into text, as they will be read
    return _json_bytes(plain | {"seal": digest_json(plain)})


def read_manifest(folder: Path, *, verify: bool = True) -> Manifest:
    """Reads an artifact's manifest and, with `verify`, checks every file against it.

    Raises `InputError` if the folder is missing, no step wrote it, or a file has changed since.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise InputError(f"{folder} does not exist")
    if not path.is_file():
        raise InputError(f"{folder} has no {MANIFEST}: no Stillhouse step wrote it, or the step did not finish")
    data = path.read_bytes()
    try:
        content = json.loads(data)
        del content["seal"]
        intact = _sealed(content) == data
        manifest = Manifest(**content, digest=digest_bytes(data))
    except (ValueError, TypeError, KeyError):
        intact = False
    if not intact:
        raise InputError(f"{path} is damaged; run the step that writes {folder} again")
    if verify:
        found = digest_files(folder)
        changed = sorted(
            name for name in manifest.files.keys() | found.keys() if manifest.files.get(name) != found.get(name)
        )
        if changed and not any(name in manifest.files for name in changed):
            raise InputError(f"{folder} holds {', '.join(changed[:3])}, which no step wrote; move it away")
        if changed:
            raise InputError(
                f"{folder}: {', '.join(changed[:3])} changed after it was written; run step '{manifest.step}' again"
            )
    return manifest


def copy_content(source: Path, target: Path) -> None:
    """Copies an artifact to an existing folder without its manifest, for a step that writes its own."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(MANIFEST), dirs_exist_ok=True)


def model_manifest(folder: Path, *, verify: bool = True) -> Manifest:
    """The manifest of a model folder. One from outside Stillhouse gets a manifest of its files' digests."""
    foreign = folder.is_dir() and not (folder / MANIFEST).is_file()
    return foreign_manifest(folder) if foreign else read_manifest(folder, verify=verify)


def digest_in(folder: Path, *, verify: bool = True) -> str:
    """The digest in a folder's manifest; "" if the manifest is missing or damaged."""
    try:
        return read_manifest(folder, verify=verify).digest
    except InputError:
        return ""


def foreign_manifest(folder: Path) -> Manifest:
    """The manifest of a model folder or a file that no step wrote: the digests of its files and nothing else."""
    if folder.is_file():
        return Manifest(step="", files={folder.name: (own := digest_file(folder))}, digest=own)
    if not folder.is_dir():
        raise InputError(f"{folder} does not exist")
    files = digest_files(folder)
    if not files:
        raise InputError(f"{folder} is empty")
    return Manifest(step="", files=files, digest=digest_json(files))
