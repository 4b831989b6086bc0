"""Work that is divided into parts: commands that nodes take in turn, one node per part.

The nodes of a `TrainJob` know their number, like the pods of an indexed Job. A finished part is marked on the shared
volume, so that a restarted job only does the others.
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
from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pods.several_processes import torchrun_words

FILE = "parts.json"
PROGRAM = ("python3", "-m", "stillhouse.kubeflow.trainjob.part")
NODE, NODES, PROCESSES = "PET_NODE_RANK", "PET_NNODES", "PET_NPROC_PER_NODE"


@dataclass(frozen=True)
class Part:
    """The arguments of a command, by default `stillhouse`; `parallel`: one process per accelerator of a node."""

    words: tuple[str, ...]
    parallel: bool = False
    module: str = "stillhouse.cli"


@dataclass(frozen=True)
class Parts:
    """The folder of one job whose nodes share parts; the first `own` belong to the pod that follows the job."""

    folder: Path
    own: int = 0

    @property
    def file(self) -> Path:
        return self.folder / FILE

    def write(self, parts: Iterable[Part]) -> None:
        """Writes the list of parts for the nodes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole_json(self.file, [asdict(part) for part in parts])

    def read(self) -> list[Part]:
        content = json.loads(self.file.read_text(encoding="utf-8"))
        return [Part(tuple(entry.pop("words")), **entry) for entry in content]

    @property
    def count(self) -> int:
        return len(self.read())

    @property
    def of_nodes(self) -> range:
        """The numbers of the nodes' parts."""
        return range(self.own + 1, self.count + 1)

    def mark(self, number: int) -> Path:
        """The file that marks a part as done; numbers start at 1."""
        return self.folder / f"part-{number:04}.done"

    def done(self) -> bool:
        """Whether every part is done."""
        return self.file.is_file() and all(self.mark(number).is_file() for number in range(1, self.count + 1))

    def clear(self) -> None:
        """Keeps the finished parts, which are not repeated."""

    def refuse_missing(self) -> None:
        """Raises `InputError` if the nodes succeeded but their parts are not here."""
        if not self.done():
            raise InputError(
                f"the nodes succeeded but left nothing in {self.folder}: another volume is mounted there. Give the "
                "placement a claim that every node can mount (ReadWriteMany), and start another run"
            )


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
    torchrun = ["stillhouse.kubeflow.pods.torchrun", "--standalone", f"--nproc-per-node={processes}"]
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
