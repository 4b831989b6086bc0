"""Objects that are slow to make: one pytest process makes them and the others use them too."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]) -> tuple[Path, Any]:
    """Return a folder and the JSON that `make(folder)` returned. The first caller makes them while others wait."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    base = factory.getbasetemp() if alone else factory.getbasetemp().parent
    folder, said = base / name, base / f"{name}.json"
    with FileLock(base / f"{name}.lock"):
        if not said.is_file():
            folder.mkdir()
            said.write_text(json.dumps(make(folder)))
    return folder, json.loads(said.read_text())
