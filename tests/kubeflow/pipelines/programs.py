"""Programs of this environment, run as a user types them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EVALUATION = "artifacts/evaluate/evaluation"


def call(folder: Path, *words: str, **variables: str) -> str:
    """Runs a program of this environment in a folder and returns what it printed."""
    programs = Path(sys.executable).parent
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "DVC_NO_ANALYTICS": "1", "STILLHOUSE_QUIET": "1"} | variables
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout + done.stderr
