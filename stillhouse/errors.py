"""What can go wrong for a user, and the exit code that each case has.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | a crash: a defect of Stillhouse or of the machine (full disk, killed process) |
| 2 | bad input: a flag, a setting, a file; the message says what to do |
| 3 | the corpus did not pass validation |
| 4 | a promotion was refused, and the old release stays; said by the commands that promote |
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stillhouse.steps.spec import Report


CRASH = 1
"""The exit code of a crash."""
NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
"""What the system says to a user who may not read or write a place, and of a file system that is read-only."""


class InputError(ValueError):
    """Something the user gave is wrong. The message names it and the remedy, in a sentence or two."""

    exit_code = 2


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
def access_told() -> Iterator[None]:
    """Takes a place that this user may not read or write for bad input: raises `InputError` that names it."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ACCESS:
            raise
        place = error.filename or "a file or folder"
        raise InputError(
            f"there is no access to {place} ({error.strerror}); let this user read and write there, or name another "
            "place"
        ) from error
