"""Checks that processes on this machine, one per GPU, can sum numbers together, as training does at every step.

An installed NCCL does not prove it. A /dev/shm that is too small, GPUs that cannot reach each other's memory, or a
broken network interface only show up when numbers are sent. So this module sends some, in its own processes, and ends
them if they do not answer in time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

SECONDS = 120.0
"""How long processes may take to start, load PyTorch and sum: about ten times as long as with eight GPUs."""
NUMBERS = 1 << 20
"""The float32 numbers that each process adds: 4 MiB, which use every path that NCCL has between two GPUs."""
PROGRAM = (sys.executable, "-m", "stillhouse.kubeflow.collective")
NCCL_DEBUG = "NCCL_DEBUG"
LONGEST = 400


def failure_together(
    processes: int, backend: str = "nccl", seconds: float = SECONDS, program: Sequence[str] = PROGRAM
) -> str:
    """The reason why `processes` processes, each with its own GPU under NCCL, cannot sum numbers; "" if they can."""
    environment = {NCCL_DEBUG: "WARN"} | os.environ
    with TemporaryDirectory() as place:
        folder, started = Path(place), []
        try:
            for rank in range(processes):
                words = [*program, backend, place, str(rank), str(processes)]
                with (folder / f"{rank}.log").open("wb") as log:
                    started.append(subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=environment))
            return _failure(started, folder, seconds)
        finally:
            for process in started:
                process.kill()
                process.wait()


def _failure(started: Sequence[subprocess.Popen[bytes]], folder: Path, seconds: float) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        codes = [process.poll() for process in started]
        for rank, code in enumerate(codes):
            if code:  # otherwise the others wait for it until the deadline
                return f"process {rank} ended with {code}: {_reason(folder / f'{rank}.log')}"
        if all(code == 0 for code in codes):
            return ""
        time.sleep(0.05)
    missing = [str(rank) for rank in range(len(started)) if not (folder / f"{rank}.arrived").exists()]
    if missing:
        return f"process {', '.join(missing)} of {len(started)} did not start within {seconds:.0f} s"
    return f"all {len(started)} processes started, but did not finish the sum within {seconds:.0f} s"


def _reason(log: Path) -> str:
    """The first warning from NCCL, or else the last line that the process printed."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    warned = [line.partition("NCCL WARN")[2].strip() for line in lines if "NCCL WARN" in line]
    return (warned[:1] or lines[-1:] or ["it printed nothing"])[0][-LONGEST:]


def add_up(backend: str, folder: Path, rank: int, processes: int) -> None:
    """One process: adds its number to the others'. Raises PyTorch's errors, or `ArithmeticError` for a wrong sum."""
    import torch
    from torch import distributed

    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    numbers = torch.full((NUMBERS,), rank + 1.0, device=device)
    (folder / f"{rank}.arrived").touch()
    # Through a file: a port might be in use, and processes on one machine need no host names.
    distributed.init_process_group(backend, init_method=f"file://{folder / 'store'}", rank=rank, world_size=processes)
    distributed.all_reduce(numbers)
    expected, found = processes * (processes + 1) / 2, (numbers.min().item(), numbers.max().item())
    distributed.destroy_process_group()
    if found != (expected, expected):
        raise ArithmeticError(f"the sum is {found[0]:g} to {found[1]:g}, not {expected:g}")


def main(words: Sequence[str]) -> int:
    backend, folder, rank, processes = words
    try:
        add_up(backend, Path(folder), int(rank), int(processes))
    except Exception as error:  # reported in one line, which the parent process reads
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
