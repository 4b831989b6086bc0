"""Opens the files of folders once and keeps them open, so that the files that were verified are those that are read.

A step replaces a whole artifact by renaming, and removes the old one. A long-running process that reads artifacts could
then read one file of the old version and the next of the new one. `OpenFolders` opens every file once and offers, in
place of each artifact, a folder of links to the open files (`/proc/self/fd`). Readers need not know about it.
"""

from __future__ import annotations

import os
import stat
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

from stillhouse.core.errors import InputError

OPEN_FILES = Path("/proc/self/fd")
"""Where Linux lists a process's open files."""


class OpenFolders:
    """`held[name]` is the folder to read instead of `folders[name]`, as long as the object lives.

    Raises `InputError` for a folder that is missing, or that is replaced while its files are being opened.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = {name: Path(folder) for name, folder in folders.items()}
        self._states: list[tuple[Path, int, tuple[int, int]]] = []
        with ExitStack() as opened:
            self._view = Path(opened.enter_context(_temporary_folder()))
            for name, folder in self._folders.items():
                self._hold(folder, self[name], opened)
            weakref.finalize(self, opened.pop_all().close)

    def __getitem__(self, name: str) -> Path:
        return self._view / name

    def _hold(self, folder: Path, into: Path, opened: ExitStack) -> None:
        try:
            top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(f"{folder} does not exist, or is not a folder") from None
        try:
            # Relative to the open folder rather than its name, so that a rename changes nothing.
            for place, _, names, number in os.fwalk(dir_fd=top, onerror=_raise):
                (into / place).mkdir(exist_ok=True)
                for name in names:
                    self._hold_file(folder / place / name, number, into / place / name, opened)
        except FileNotFoundError:
            raise InputError(f"{folder} was replaced while it was being opened; try again") from None
        finally:
            os.close(top)

    def _hold_file(self, path: Path, folder: int, link: Path, opened: ExitStack) -> None:
        try:
            file = os.open(path.name, os.O_RDONLY | os.O_NONBLOCK, dir_fd=folder)  # so as not to wait for a pipe
        except FileNotFoundError:
            os.stat(path.name, dir_fd=folder, follow_symlinks=False)
            return  # a link to nothing
        except PermissionError as error:
            raise PermissionError(error.errno, error.strerror, str(path)) from None
        opened.callback(os.close, file)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return
        self._states.append((path, file, (found.st_size, found.st_mtime_ns)))
        link.symlink_to(OPEN_FILES / str(file))

    def refuse_changed(self) -> None:
        """Raises `InputError` if something wrote into an open file instead of replacing it."""
        for path, file, state in self._states:
            now = os.fstat(file)
            if (now.st_size, now.st_mtime_ns) != state:
                raise InputError(f"{path} was overwritten while it was in use; restart to use the new file")

    @contextmanager
    def named(self) -> Iterator[None]:
        """Makes every `InputError` of the block show the folders under their given names."""
        try:
            yield
        except InputError as error:
            message = str(error)
            for name, folder in self._folders.items():
                message = message.replace(str(self[name]), str(folder))
            raise InputError(message) from error


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="stillhouse-")
    except FileNotFoundError:
        raise InputError("no folder for temporary files is writable; set TMPDIR to one that is") from None


def _raise(error: OSError) -> NoReturn:
    raise error
