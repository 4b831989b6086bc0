"""One process at a time on a folder."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stillhouse.errors import InputError, usable_place

SECONDS_BETWEEN_LOOKS = 0.5
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
"""What file systems say that cannot lock, as some that stand for object stores: nobody is refused there."""


@contextmanager
def only_process(folder: Path, wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Holds `folder` for this process until the block ends; the system lets go of it when the process is killed.

    The lock is on the file `.NAME.lock` beside the folder, which need not exist. While another process holds it, this
    one says so to `wait` and waits for its end; without `wait` it raises `InputError`.
    """
    waiting = False
    path = folder.with_name(f".{folder.name}.lock")
    with usable_place(folder):
        path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with usable_place(folder):
            file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o644)
        if os.fstat(file).st_size:  # a lock of Stillhouse's is empty
            os.close(file)
            raise InputError(f"{path} is no lock of Stillhouse's, and would be removed as one; move it away")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            if wait is None:
                raise InputError(
                    f"another process is writing {folder}; wait until it has ended, or name another folder"
                ) from None
            if not waiting:
                wait(f"another process is at work in {folder}; this one goes on when it has ended")
            waiting = True
            time.sleep(SECONDS_BETWEEN_LOOKS)
            continue
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(file)
                raise
        if _is(file, path):
            break
        os.close(file)  # its last holder removed it between our opening and locking it
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def _is(file: int, path: Path) -> bool:
    """Whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
