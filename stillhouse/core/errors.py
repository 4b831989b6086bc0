"""The errors that a user may see, with their exit codes.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | a crash: a defect in Stillhouse or a problem of the machine (full disk, killed process) |
| 2 | bad input: a flag, a setting, a file, settings with which a training diverges; the message says what to do |
| 3 | the corpus did not pass validation |
| 4 | a promotion was refused and the old release stays; only for commands that promote |
| 130 | interrupted by Ctrl-C |
"""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeGuard

from stillhouse.core.report import Report

CRASH = 1
"""The exit code of a crash."""
INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 plus the signal's number, as in shells."""
INTERRUPTION = "stillhouse: interrupted; run the same command again to resume from the last checkpoint"
NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)
"""Error numbers for a missing permission, a read-only file system and a name that is too long."""
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
"""Error numbers for a name that no file or folder can have: too long, below a file, in /proc."""
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers for a full disk, and for a user or volume at its quota."""
RUST_OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""How libraries written in Rust (tokenizers, safetensors) end a message about a system error."""
COPY_FAILED = re.compile(r"\[Errno (\d+)\]")
"""How `shutil.copytree` quotes the system error of each file that it could not copy."""


class InputError(ValueError):
    """Wrong input from the user. The message says what is wrong and how to fix it, in a sentence or two."""

    exit_code = 2

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback: in a notebook, the sentence is enough too."""
        return [f"{type(self).__name__}: {self}"]


class NotFinite(InputError, FloatingPointError):
    """A training produced a number that is not finite. Other settings, above all a lower learning rate, prevent it."""


class ValidationFailed(Exception):
    """The corpus fails a threshold of `validate`. The output is written all the same; `report` is the step's report."""

    exit_code = 3

    def __init__(self, message: str, report: Report | None = None) -> None:
        super().__init__(message)
        self.report = report


class CrashElsewhere(Exception):
    """Another process crashed or was lost. Its output was shown; a stack trace of this process would not help."""

    exit_code = CRASH


@contextmanager
def access_errors() -> Iterator[None]:
    """Raises `InputError` with the path if this user may not read or write a file or folder.

    Raises `OSError` with its number for a full disk, even if a library reports it only in words.
    """
    try:
        with _copies_say_why():
            yield
    except OSError as error:
        if error.errno not in NO_ACCESS:
            raise
        place = error.filename or "a file or folder"
        raise InputError(
            f"cannot read or write {place} ({error.strerror}); give this user read and write access, or choose another "
            "path"
        ) from error
    except Exception as error:
        if "Could not determine home directory" in str(error):
            raise InputError("a path begins with `~` and the name of no user; write it as `~/` or in full") from error
        found = RUST_OS_ERROR.search(str(error))
        if not found or int(found[1]) not in FULL_DISK:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1]))) from error


@contextmanager
def _copies_say_why() -> Iterator[None]:
    """Turns the `shutil.Error` of a copied folder, which has no number, into the first system error that it quotes."""
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
    """Raises `InputError` with the path if the system cannot create anything there."""
    try:
        yield
    except (OSError, ValueError) as error:  # a name with a NUL, or one that the system cannot spell, is a ValueError
        if isinstance(error, InputError) or (isinstance(error, OSError) and error.errno not in NO_PLACE):
            raise
        name = str(place) if str(place).isprintable() else ascii(str(place))
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"nothing can be written to {name} ({why}); choose another path") from error


def is_full_disk(error: BaseException) -> TypeGuard[OSError]:
    """Whether an error means that a disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in FULL_DISK


REFUSED_CODE = 4
"""The exit code of a command that refused the challenger."""
