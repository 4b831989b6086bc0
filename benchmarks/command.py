"""The command line of a benchmark, and measurements in a process of their own."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def command(name: str, text: str | None) -> argparse.ArgumentParser:
    """The parser of the benchmark `name`, with the two flags that all have."""
    parser = argparse.ArgumentParser(
        f"python -m benchmarks {name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--page", type=Path, default=HERE / f"{name}.md", help="where the results page is written")
    return parser


def run_alone(name: str, words: Sequence[object], **environment: str) -> dict[str, Any]:
    """Runs a benchmark that prints its figures as JSON in its last line. `load` is the machine's before it began."""
    load = os.getloadavg()[0]
    given = [sys.executable, "-m", "benchmarks", name, *map(str, words)]
    done = subprocess.run(given, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | environment)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"load": load}
