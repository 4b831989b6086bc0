"""Objects that are slow to make: one of pytest's processes makes them for all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]) -> tuple[Path, Any]:
    """A folder of this name and the JSON that `make(folder)` returned: the first caller makes it, others wait."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    base = factory.getbasetemp() if alone else factory.getbasetemp().parent
    folder, said = base / name, base / f"{name}.json"
    with FileLock(base / f"{name}.lock"):
        if not said.is_file():
            folder.mkdir()
            said.write_text(json.dumps(make(folder)))
    return folder, json.loads(said.read_text())
