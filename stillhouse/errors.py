"""What can go wrong for a user, and the exit code that each case has.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | a crash: a defect of Stillhouse or of the machine (full disk, killed process) |
| 2 | bad input: a flag, a setting, a file; the message says what to do |
| 3 | the corpus did not pass validation |
| 4 | a promotion was refused, and the old release stays; said by the commands that promote |
| 130 | interrupted by SIGINT (`stillhouse.interrupt`) |
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeGuard

from stillhouse.report import Report

CRASH = 1
"""The exit code of a crash."""
NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
"""What the system says to a user who may not read or write a place, and of a file system that is read-only."""
NO_PLACE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EINVAL,
    errno.EOPNOTSUPP,
)
"""What it says where a name can never be that of a file or folder: too long, below a file, in /proc."""
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
"""What it says of a disk without room, and of a user or a volume at its quota."""
RUST_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""How libraries that are written in Rust end what they say of the system's errors: tokenizers, safetensors."""
COPY_FAILED = re.compile(r"\[Errno (\d+)\]")
"""How `shutil.copytree` quotes the system's error for each file that it could not copy."""


class InputError(ValueError):
    """Something the user gave is wrong. The message names it and the remedy, in a sentence or two."""

    exit_code = 2

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in the place of a traceback: in a notebook too the sentence is enough."""
        return [f"{type(self).__name__}: {self}"]


class ValidationFailed(Exception):
    """The corpus breaks a threshold of `validate`. Its output is written all the same; `report` is the step's."""

    exit_code = 3

    def __init__(self, message: str, report: Report | None = None) -> None:
        super().__init__(message)
        self.report = report


class CrashElsewhere(Exception):
    """Another process crashed or was taken away. Its lines were shown; a stack trace of this one would say nothing."""

    exit_code = CRASH


@contextmanager
def access_errors() -> Iterator[None]:
    """Takes a place that this user may not read or write for bad input: raises `InputError` that names it.

    A full disk is an `OSError` with its number, also where a library says it in words alone.
    """
    try:
        with _copies_say_why():
            yield
    except OSError as error:
        if error.errno not in NO_ACCESS:
            raise
        place = error.filename or "a file or folder"
        raise InputError(
            f"there is no access to {place} ({error.strerror}); let this user read and write there, or name another "
            "place"
        ) from error
    except Exception as error:
        found = RUST_OS_ERROR.search(str(error))
        if not found or int(found[1]) not in FULL_DISK:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1]))) from error


@contextmanager
def _copies_say_why() -> Iterator[None]:
    """Turns the `shutil.Error` of a copied folder, which has no number, into the first error that it quotes."""
    try:
        yield
    except shutil.Error as error:
        failed = next((file for file in error.args[0] if isinstance(file, tuple)), None)
        quoted = COPY_FAILED.search(str(failed[2])) if failed else None
        if not failed or not quoted:
            raise
        raise OSError(int(quoted[1]), os.strerror(int(quoted[1])), str(failed[1])) from error


@contextmanager
def usable_place(place: Path) -> Iterator[None]:
    """Takes a place where the system can make nothing for bad input: raises `InputError` that names it."""
    try:
        yield
    except (OSError, ValueError) as error:  # a name with a NUL, or one that the system cannot spell, is a ValueError
        if isinstance(error, InputError) or (isinstance(error, OSError) and error.errno not in NO_PLACE):
            raise
        name = str(place) if str(place).isprintable() else ascii(str(place))
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"nothing can be written to {name} ({why}); name another place") from error


def is_full_disk(error: BaseException) -> TypeGuard[OSError]:
    """Whether an error says that a disk, or a quota, has no room left."""
    return isinstance(error, OSError) and error.errno in FULL_DISK


REFUSED_CODE = 4
"""The exit code of a command whose challenger was refused."""
