"""Whether processes of this machine, one a GPU, can add up numbers together, as a training does at every step.

That NCCL is there says nothing of this: too small a /dev/shm, GPUs that do not reach each other's memory, or a network
interface that does not work show only when numbers are sent. So this module sends some, in processes of its own, and
ends them when they do not answer in time.
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
"""How long processes have to start, to load PyTorch and to add up: some ten times what eight GPUs take."""
NUMBERS = 1 << 20
"""What each process adds, as float32: 4 MiB go through every way that NCCL has between two GPUs."""
PROGRAM = (sys.executable, "-m", "stillhouse.kubernetes.collective")
NCCL_DEBUG = "NCCL_DEBUG"
LONGEST = 400


def failure_together(
    processes: int, backend: str = "nccl", seconds: float = SECONDS, program: Sequence[str] = PROGRAM
) -> str:
    """Why `processes` processes, each with a GPU of its own under NCCL, cannot add up; "" where they can."""
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
            if code:  # the others would wait for it until the deadline
                return f"process {rank} ended with {code}: {_reason(folder / f'{rank}.log')}"
        if all(code == 0 for code in codes):
            return ""
        time.sleep(0.05)
    missing = [str(rank) for rank in range(len(started)) if not (folder / f"{rank}.arrived").exists()]
    if missing:
        return f"process {', '.join(missing)} of {len(started)} never arrived, in {seconds:.0f} s"
    return f"all {len(started)} processes arrived, and had no sum in {seconds:.0f} s"


def _reason(log: Path) -> str:
    """NCCL's own first complaint, else the last thing that the process said."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    warned = [line.partition("NCCL WARN")[2].strip() for line in lines if "NCCL WARN" in line]
    return (warned[:1] or lines[-1:] or ["it said nothing"])[0][-LONGEST:]


def add_up(backend: str, folder: Path, rank: int, processes: int) -> None:
    """One of the processes: adds its number to those of the others. Raises what PyTorch does, or for a wrong sum."""
    import torch
    from torch import distributed

    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    numbers = torch.full((NUMBERS,), rank + 1.0, device=device)
    (folder / f"{rank}.arrived").touch()
    # By a file: a port might be another's, and names of hosts are no affair of processes of one machine.
    distributed.init_process_group(backend, init_method=f"file://{folder / 'store'}", rank=rank, world_size=processes)
    distributed.all_reduce(numbers)
    expected, found = processes * (processes + 1) / 2, (numbers.min().item(), numbers.max().item())
    distributed.destroy_process_group()
    if found != (expected, expected):
        raise ArithmeticError(f"the sum is {found[0]:g} to {found[1]:g} and not {expected:g}")


def main(words: Sequence[str]) -> int:
    backend, folder, rank, processes = words
    try:
        add_up(backend, Path(folder), int(rank), int(processes))
    except Exception as error:  # reported in one line, which the process that started this one looks for
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
