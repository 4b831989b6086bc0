"""Work folders that nobody will go on with: their code, settings or inputs are of the past, or a kill came at the end.

A step looks for those of its own name alone. Each is held while it is looked at and removed, as it is by a process that
works in it: one that waits for it finds no folder and makes a new one, as for work that was never begun.
"""

from __future__ import annotations

import re
import shutil
import time
from contextlib import suppress
from itertools import chain
from pathlib import Path

from stillhouse.errors import InputError
from stillhouse.lock import only_process

DAYS = 30
"""How long unfinished work is kept that no process touches: longer than anybody is away from a run."""


def remove_old_work(root: Path, step: str, keep: str) -> list[str]:
    """Removes what a step has in `root` of old unfinished work, and says which; all but the folder named `keep`.

    What another process holds, or this user may not remove, stays.
    """
    removed = []
    for folder in sorted(root.glob(f"{step}-*")):
        if folder.name == keep or not re.fullmatch(rf"{re.escape(step)}-[0-9a-f]{{20}}", folder.name):
            continue
        with suppress(InputError, OSError):
            if _old(folder) and _removed(folder):
                removed.append(folder.name)
    return removed


def _removed(folder: Path) -> bool:
    """Removes a folder unless another process has taken it up meanwhile. Raises `InputError` where one holds it."""
    with only_process(folder):
        if not _old(folder):
            return False
        shutil.rmtree(folder)
        return True


def _old(folder: Path) -> bool:
    """Whether no file of a folder was written for so long. Raises `OSError` for one that is gone."""
    limit = time.time() - DAYS * 24 * 3600
    return all(path.stat().st_mtime < limit for path in chain([folder], folder.rglob("*")))
