"""Removes abandoned work folders: their code, settings or inputs are outdated, or a kill came at the very end.

A step looks only for its own folders. Each one is locked while it is checked and removed, as it is by a process that
works in it. A process that waits for it then finds no folder and makes a new one, as for new work.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Container
from contextlib import suppress
from itertools import chain
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.core.lock import only_process

DAYS = 30
"""How many days to keep unfinished work that no process uses: longer than anybody pauses a run."""
HANDED_OVER = "handed-over"
"""In the work of a Kubeflow task that has handed over what it wrote, a file with its digest, or with the task's name.
Kubeflow collects the outputs when the pod has ended; if this fails, the next try needs the work."""


def remove_handed_over(root: Path, said: Container[str]) -> None:
    """Removes the work in `root` whose `HANDED_OVER` says one of these words."""
    for mark in root.glob(f"*/{HANDED_OVER}"):
        with suppress(InputError, OSError), only_process(mark.parent):
            if mark.read_text(encoding="utf-8") in said:
                shutil.rmtree(mark.parent)


def remove_old_work(root: Path, step: str, keep: str) -> list[str]:
    """Removes a step's old unfinished work in `root`, except the folder named `keep`, and returns the names.

    Folders that another process holds, or that this user may not remove, stay.
    """
    removed, limit = [], time.time() - DAYS * 24 * 3600
    for folder in sorted(root.glob(f"{step}-*")):
        if folder.name == keep or not re.fullmatch(rf"{re.escape(step)}-[0-9a-f]{{20}}", folder.name):
            continue
        with suppress(InputError, OSError), only_process(folder):
            # A folder that is gone by now raises `OSError`.
            if all(path.lstat().st_mtime < limit for path in chain([folder], folder.rglob("*"))):
                shutil.rmtree(folder)
                removed.append(folder.name)
    return removed
