"""How many threads compute, and how they wait for each other; libraries read it once, when they are imported.

PyTorch, faiss and Arrow start a thread for every core of the machine, even in a pod that may use eight of sixty-four.
And a thread that has finished its share spins until the others have, by default for milliseconds. If another program
uses one of the cores, that time is lost at each of the thousands of meetings of a training step, which then takes up
to eight times as long (docs/findings-speed.md).
"""

import os
from collections.abc import MutableMapping

from stillhouse.core.own_machine import own_cores

THREADS = "OMP_NUM_THREADS"
POLICY, SPINS = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"
FEW = "3000"
"""Spins before a thread sleeps: a tenth of a millisecond and less."""


def prepare_threads(environment: MutableMapping[str, str] = os.environ) -> None:
    """Sets what the environment leaves open, for this process and those it starts, before PyTorch is imported."""
    cores = own_cores()
    if cores < (os.cpu_count() or 1):
        environment.setdefault(THREADS, str(cores))
    if POLICY not in environment:
        environment.setdefault(SPINS, FEW)


def divide_threads(processes: int, environment: MutableMapping[str, str] = os.environ) -> None:
    """Gives each of the processes that this one starts its share of the threads, at least one."""
    first = environment.get(THREADS, "").partition(",")[0]  # the rest is for threads of threads
    threads = int(first) if first.isdecimal() else own_cores()
    environment[THREADS] = str(max(1, threads // processes))
