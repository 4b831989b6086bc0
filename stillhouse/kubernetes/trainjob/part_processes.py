"""Does parts of divided work one after the other, each in its own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType

from stillhouse.kubernetes.pods.several_processes import torchrun_words
from stillhouse.kubernetes.trainjob.parts import Part, Parts

PROGRAM = ("python3", "-m", "stillhouse.kubernetes.trainjob.part")
NODE, NODES, PROCESSES = "PET_NODE_RANK", "PET_NNODES", "PET_NPROC_PER_NODE"


def do_parts(parts: Parts, numbers: Iterable[int], processes: int, environment: Mapping[str, str] = os.environ) -> int:
    """Does the unfinished `parts` with these numbers. Returns 0, or the exit code of the first that fails."""
    every = parts.read()
    for number in numbers:
        if not parts.mark(number).is_file():
            code = _run(command(every[number - 1], processes), environment)
            if code:
                return code
            parts.mark(number).touch()
    return 0


def command(part: Part, processes: int) -> list[str]:
    """The command line of a part on a node with this many processes."""
    if not part.parallel or processes == 1:
        return [sys.executable, "-m", part.module, *part.words]
    torchrun = ["stillhouse.kubernetes.pods.torchrun", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable, "-m", *torchrun, *torchrun_words(part.words)]


def _run(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs a process, passes SIGTERM on to it, and returns its exit code (128 plus the number for a signal)."""
    # torchrun would read Trainer's variables as its own, and wait for the other nodes.
    own = {name: value for name, value in environment.items() if not name.startswith("PET_")}
    process = subprocess.Popen(words, env=own)

    def hand_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = signal.signal(signal.SIGTERM, hand_on)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
    return code if code >= 0 else 128 - code
