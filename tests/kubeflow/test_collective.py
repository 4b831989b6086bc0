"""Collective sums over CPU processes with gloo: all of them arrive, one fails, or one never arrives."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from stillhouse.kubeflow.collective import PROGRAM, add_up, failure_together

pytest.importorskip("torch")

SECOND = "if rank == '1': "
# What a process does instead of adding up, the time limit in seconds, and the reported failure.
WRONG = {
    "one fails": (
        SECOND + "sys.exit('libnccl.so is not there')",
        300,
        "process 1 ended with 1: libnccl.so is not there",
    ),
    "NCCL's own complaint goes first": (
        SECOND + "print('x:1:1 [0] NCCL WARN Error: failed to extend /dev/shm/nccl-a'); sys.exit('RuntimeError')",
        300,
        "process 1 ended with 1: Error: failed to extend /dev/shm/nccl-a",
    ),
    # Process 0 waits for it, or has not arrived yet either.
    "one never arrives": (SECOND + "time.sleep(600)", 5, r"process (0, )?1 of 2 did not start within 5 s"),
    "nothing is sent": (
        "Path(folder, rank + '.arrived').touch(); time.sleep(600)",
        3,
        "all 2 processes started, but did not finish the sum within 3 s",
    ),
}


def test_processes_that_reach_each_other_pass() -> None:
    assert failure_together(2, "gloo", 300.0) == ""


@pytest.mark.parametrize("case", WRONG)
def test_a_process_that_does_not_take_part_is_reported(case: str, tmp_path: Path) -> None:
    does, seconds, expected = WRONG[case]
    (tmp_path / "another.py").write_text(
        "import os, sys, time\nfrom pathlib import Path\nbackend, folder, rank, processes = sys.argv[1:]\n"
        f"{does}\nos.execv(sys.executable, [*{PROGRAM!r}, *sys.argv[1:]])\n"
    )
    begun = time.monotonic()
    found = failure_together(2, "gloo", seconds, (sys.executable, str(tmp_path / "another.py")))
    assert re.fullmatch(expected, found)
    assert time.monotonic() - begun < seconds + 5, "who waits for it is ended"


def test_a_wrong_sum_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs with broken peer access do answer, but corrupt the numbers."""
    from torch import distributed

    monkeypatch.setattr(distributed, "all_reduce", lambda numbers: numbers[7].add_(1))
    with pytest.raises(ArithmeticError, match="the sum is 1 to 2, not 1"):
        add_up("gloo", tmp_path, 0, 1)
