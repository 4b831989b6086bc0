"""Work that is divided into parts: commands that nodes take in turn, one node per part.

    python3 -m stillhouse.kubeflow.trainjob.parts FOLDER [OWN]

does those of this node, one after the other. Trainer sets torchrun's own environment variables (`PET_…`): the number of
nodes and the number of this one. The first OWN parts, none by default, belong to the pod that started the job. A
finished part is marked on the shared volume, so that a restarted job only does the others.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from stillhouse.core.artifacts import write_whole_json
from stillhouse.kubeflow.pods.process import one_line_errors, refuse_lost_gpu
from stillhouse.kubeflow.pods.several_processes import by_torchrun

FILE = "parts.json"
PROGRAM = ("python3", "-m", "stillhouse.kubeflow.trainjob.parts")
NODE, NODES, PROCESSES = "PET_NODE_RANK", "PET_NNODES", "PET_NPROC_PER_NODE"


@dataclass(frozen=True)
class Part:
    """The arguments of a command, by default `stillhouse`; `parallel`: one process per accelerator of a node."""

    words: tuple[str, ...]
    parallel: bool = False
    module: str = "stillhouse.cli"


def write_parts(folder: Path, parts: Iterable[Part]) -> None:
    """Writes the list of parts for the nodes."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole_json(folder / FILE, [asdict(part) for part in parts])


def read_parts(folder: Path) -> list[Part]:
    content = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return [Part(tuple(entry.pop("words")), **entry) for entry in content]


def mark(folder: Path, number: int) -> Path:
    """The file that marks a part as done; numbers start at 1."""
    return folder / f"part-{number:04}.done"


def all_done(folder: Path, own: int = 0) -> bool:
    """Whether every part after the first `own` is done."""
    return (folder / FILE).is_file() and all(
        mark(folder, number).is_file() for number in range(own + 1, len(read_parts(folder)) + 1)
    )


def command(part: Part, processes: int) -> list[str]:
    """The command line of a part on a node with this many processes."""
    if part.parallel and processes > 1:
        return by_torchrun(part.words, processes)
    return [sys.executable, "-m", part.module, *part.words]


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


def main(argv: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Does this node's parts and returns the exit code of the first that failed, or 0."""
    folder, own = Path(argv[0]), int(argv[1]) if argv[1:] else 0
    with one_line_errors():
        refuse_lost_gpu()
    node, nodes = int(environment.get(NODE, "0")), int(environment.get(NODES, "1"))
    every, processes = read_parts(folder), int(environment.get(PROCESSES, "1"))
    for number in range(own + 1, len(every) + 1)[node::nodes]:
        if not mark(folder, number).is_file():
            code = _run(command(every[number - 1], processes), environment)
            if code:
                return code
            mark(folder, number).touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
