"""What a benchmark measured so far, in a JSON file, so that a stopped run continues where it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillhouse.artifacts import write_whole


def read_kept(path: Path) -> dict[str, Any]:
    """What `write_kept` wrote; empty before the first time."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write_kept(path: Path, found: Mapping[str, Any]) -> None:
    """Writes the file, whole or not at all, with a line for each list, so that a change shows as few lines."""
    write_whole(path, json.dumps(found, sort_keys=True).replace('], "', '],\n"') + "\n")
