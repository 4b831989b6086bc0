"""Lets only one process at a time work in a folder."""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stillhouse.core.errors import InputError, usable_place

SECONDS_BETWEEN_LOOKS = 0.5
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
"""Error numbers of file systems that cannot lock, such as some mounts of object stores; there, no process is
refused."""


@contextmanager
def only_process(folder: Path, wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Locks `folder` for this process until the block ends; the system releases the lock if the process is killed.

    The lock is on the file `.NAME.lock` beside the folder, which need not exist. While another process holds it, this
    process reports that to `wait` and waits; without `wait` it raises `InputError`.
    """
    waiting = False
    folder = folder.absolute()
    path = folder.with_name(f".{folder.name}.lock")
    with usable_place(folder):
        path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with usable_place(folder):
            file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o644)
        if os.fstat(file).st_size:  # Stillhouse's own lock files are empty
            os.close(file)
            raise InputError(f"{path} is not a lock file of Stillhouse, but would be removed as one; move it away")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            if wait is None:
                raise InputError(
                    f"another process is writing {folder}; wait until it ends, or choose another folder"
                ) from None
            if not waiting:
                wait(f"another process is working in {folder}; this one continues when that one ends")
            waiting = True
            time.sleep(SECONDS_BETWEEN_LOOKS)
            continue
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(file)
                raise
        if _is(file, path):
            break
        os.close(file)  # its last holder removed it after we opened it and before we locked it
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def _is(file: int, path: Path) -> bool:
    """Whether an open file is the one that now has this name."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
