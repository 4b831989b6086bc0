"""Files in the user's own folders: Stillhouse replaces and removes only files that it wrote itself.

Such a folder has `.stillhouse/made.json`: {path in the folder: digests of what Stillhouse wrote there}. A file that is
not in this record, or that has changed since, belongs to the user, and Stillhouse refuses to replace it. Artifact
folders are not recorded, since each has its own manifest (`artifacts.refuse_foreign`).
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from stillhouse.core.artifacts import digest_file, flush, refuse_file_above, whole_folder, write_whole
from stillhouse.core.context import say
from stillhouse.core.errors import InputError, usable_place
from stillhouse.core.lock import only_process

OWN = ".stillhouse"
RECORD = "made.json"
STREAMS = ("/dev/", "/proc/")
"""Paths that are written in place: /dev/stdout leads to whatever the shell redirects it to."""

Record = Mapping[str, Sequence[str]]


def make_folder(folder: Path) -> None:
    """Creates a folder that the user named. Raises `InputError` if that is impossible."""
    with usable_place(folder):
        folder.mkdir(parents=True, exist_ok=True)


def link_or_copy(file: str, target: str) -> None:
    """Hard-links a file on the same disk; copies it otherwise."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)


def copy_whole(folder: Path, target: Path) -> Path:
    """Copies a folder completely or not at all, by links on the same disk. What an earlier try copied stays."""
    if not target.is_dir():
        with whole_folder(target) as staging:
            shutil.copytree(folder, staging, dirs_exist_ok=True, copy_function=link_or_copy)
    return target


def refuse_foreign_files(folder: Path, names: Iterable[str]) -> None:
    """Raises `InputError` if `folder` holds, under one of `names`, a file or link that Stillhouse did not make.

    A name is a path in the folder; one that ends in `/` stands for everything in that subfolder.
    """
    made = _read(folder)
    for name in names:
        _refuse(folder, name, made)


def refuse_foreign_file(path: Path) -> None:
    """`refuse_foreign_files` for a single file."""
    if not _is_stream(path):
        refuse_foreign_files(path.parent, [path.name])


@contextmanager
def own_files(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yields an empty folder; its files replace those of `folder` once the block ends without an error.

    `names` lists what the block may write, as in `refuse_foreign_files`. In a subfolder among them, files that
    Stillhouse made earlier and the block did not write again are removed. A block that writes nothing changes nothing.
    Raises `InputError`, and changes nothing, if a file that Stillhouse did not make would be replaced.
    """
    refuse_foreign_files(folder, names)
    make_folder(folder / OWN)
    with TemporaryDirectory(dir=folder / OWN, prefix="results-") as place:
        staging = Path(place)
        yield staging
        flush(staging)
        with only_process(folder / OWN / RECORD, wait=say):
            _put(staging, folder, names)


@contextmanager
def own_file(path: Path) -> Iterator[Path]:
    """`own_files` for a single file: yields the path that the block must write to.

    A special file such as /dev/stdout is written in place.
    """
    if _is_stream(path):
        yield path
        return
    with own_files(path.parent, [path.name]) as staging:
        yield staging / path.name


def _is_stream(path: Path) -> bool:
    regular = (path.is_file() and not str(path).startswith(STREAMS)) or path.is_dir()
    return path.exists() and not regular


def _put(staging: Path, folder: Path, names: Sequence[str]) -> None:
    made = _read(folder)
    new = {path.relative_to(staging).as_posix(): digest_file(path) for path in staging.rglob("*") if path.is_file()}
    if not new:
        return
    for name in {*names, *new}:  # again, since the block may have taken long
        _refuse(folder, name, made)
    folders = tuple(name for name in names if name.endswith("/"))
    stale = [name for name in made if name.startswith(folders) and name not in new]
    # The record comes before the files, so that it knows them even if this process is killed in between.
    _write(folder, {**made, **{name: [*made.get(name, []), digest] for name, digest in new.items()}})
    for name in new:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (staging / name).replace(target)
    for name in stale:
        (folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # the folder is not empty
            for above in (folder / name).relative_to(folder).parents[:-1]:
                (folder / above).rmdir()
    kept = {name: digests for name, digests in made.items() if name not in stale}
    _write(folder, {**kept, **{name: [digest] for name, digest in new.items()}})


def _refuse(folder: Path, name: str, made: Record) -> None:
    path = folder / name
    refuse_file_above(path)
    inner = [path]
    if name.endswith("/") and path.is_dir() and not path.is_symlink():
        inner = [found for found in path.rglob("*") if found.is_symlink() or not found.is_dir()]
    for found in inner:
        own = made.get(found.relative_to(folder).as_posix(), ())
        if os.path.lexists(found) and not _is_own(found, own):
            why = "was changed since Stillhouse wrote it" if own else "exists, and Stillhouse did not make it"
            raise InputError(f"{found} {why}; move it away, or choose another path")


def _is_own(path: Path, digests: Sequence[str]) -> bool:
    return bool(digests) and path.is_file() and not path.is_symlink() and digest_file(path) in digests


def _read(folder: Path) -> Record:
    path = folder / OWN / RECORD
    if not os.path.lexists(path):
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError:
        content = None
    if not isinstance(content, dict) or not all(isinstance(digests, list) for digests in content.values()):
        raise InputError(
            f"{path} is damaged, so it is unknown which files here are Stillhouse's; choose another folder"
        )
    return content


def _write(folder: Path, made: Record) -> None:
    # In ASCII, since a file name may not be valid UTF-8.
    write_whole(folder / OWN / RECORD, json.dumps(made, indent=2, sort_keys=True) + "\n")
