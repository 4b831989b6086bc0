"""Runs the tests that need a GPU (`tests/gpu`) and writes a page that says what held: the part `correctness` of `gpu`.

`--device cpu` tries them without a GPU.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import write_page

ROOT = Path(__file__).resolve().parents[1]


def main(argv: Sequence[str] | None = None) -> int:
    parser = command("gpu_tests", __doc__)
    parser.add_argument("--processes", type=int, default=8, help="that share the GPU")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu tries the tests without a GPU")
    arguments = parser.parse_args(argv)
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [sys.executable, "-m", "pytest", "tests/gpu", "-v", "-p", "no:cacheprovider", f"--junitxml={report}"]
        words += ["-n", str(arguments.processes)] if arguments.processes > 1 else []
        environment = os.environ | {"STILLHOUSE_TEST_DEVICE": arguments.device, "OMP_NUM_THREADS": "1"}
        status = subprocess.run(
            words, cwd=ROOT, env=environment, stdout=sys.stdout, stderr=sys.stderr, check=False
        ).returncode
        lines = list(page(report, arguments.processes))
    write_page(arguments.page, lines)
    return 0 if status in (0, 1) else status  # 1: some tests failed, which the page says


def page(report: Path, processes: int) -> list[str]:
    """A row for each file of tests: how many passed, failed and were skipped; then the names of those that failed."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    failed = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):  # noqa: S314 - our own report
        name = re.sub(r".*\.", "", case.get("classname", ""))
        skipped = case.find("skipped") is not None
        broken = case.find("failure") is not None or case.find("error") is not None
        counts[name][1 if broken else 2 if skipped else 0] += 1
        if broken:
            failed.append(f"{name}::{case.get('name')}")
    lines = ["# Correctness", "", f"Command: `pytest tests/gpu -n {processes}`.", "", machine("torch", "transformers")]
    lines += ["", "| tests | passed | failed | skipped |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {' | '.join(map(str, row))} |" for name, row in sorted(counts.items())]
    return [*lines, "", f"Failed: {', '.join(f'`{name}`' for name in failed)}." if failed else "No test failed."]
