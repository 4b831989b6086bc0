"""Work that is divided into parts: commands that nodes take in turn, one node per part.

The nodes of a `TrainJob` know their number, like the pods of an indexed Job. A finished part is marked on the shared
volume, so that a restarted job only does the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from stillhouse.artifacts import write_whole_json
from stillhouse.errors import InputError

FILE = "parts.json"


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
                f"the nodes succeeded but left nothing in {self.folder}: they have another volume at this path. "
                "Give the placement a claim that every node can mount (ReadWriteMany) and start another run"
            )
