"""The program on each node of a `TrainJob` whose nodes share parts: it does this node's parts one after the other.

    python3 -m stillhouse.kubernetes.trainjob.part FOLDER [OWN]

Trainer sets torchrun's own environment variables (`PET_…`): the number of nodes and the number of this one. The first
OWN parts, none by default, belong to the pod that started the job.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from stillhouse.errors import CRASH
from stillhouse.kubernetes.pods.component import one_line_errors
from stillhouse.kubernetes.pods.pod_preflight import check_pod
from stillhouse.kubernetes.pods.several_processes import torchrun_words
from stillhouse.kubernetes.trainjob.last_words import ENDED
from stillhouse.kubernetes.trainjob.parts import Part, Parts
from stillhouse.terminal import warn

PROGRAM = ("python3", "-m", "stillhouse.kubernetes.trainjob.part")
NODE, NODES, PROCESSES = "PET_NODE_RANK", "PET_NNODES", "PET_NPROC_PER_NODE"


def main(argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Does this node's parts and returns the exit code of the first that failed, or 0.

    A failed node names its exit code in its last line, as in `stillhouse.kubernetes.trainjob.node`.
    """
    folder, *own = argv
    parts = Parts(Path(folder), int(own[0]) if own else 0)
    node, nodes = int(environment.get(NODE, "0")), int(environment.get(NODES, "1"))
    processes = int(environment.get(PROCESSES, "1"))
    code = 0
    try:
        with one_line_errors():
            check_pod()
        code = do_parts(parts, parts.of_nodes[node::nodes], processes, environment)
    except SystemExit as end:  # its message was printed
        code = end.code if isinstance(end.code, int) else CRASH
    if code:
        warn(f"{ENDED}{code}")
    return code


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
