"""Work that is divided into parts: commands that nodes take in turn, each part done by one of them.

The nodes of a `TrainJob` know their number, as an indexed Job's pods do. A part that is done is marked on the shared
volume, so that a job that is started again does only the others.
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
    """The words of a command, by default of `stillhouse`; `parallel`: a process for each of a node's accelerators."""

    words: tuple[str, ...]
    parallel: bool = False
    module: str = "stillhouse.cli"


@dataclass(frozen=True)
class Parts:
    """The folder of one job whose nodes share parts, all but the first `own`, which are the following pod's."""

    folder: Path
    own: int = 0

    @property
    def file(self) -> Path:
        return self.folder / FILE

    def write(self, parts: Iterable[Part]) -> None:
        """Says what the parts are, for the nodes."""
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
        """The numbers of the parts that nodes do."""
        return range(self.own + 1, self.count + 1)

    def mark(self, number: int) -> Path:
        """The file that says that a part is done; parts are numbered from 1."""
        return self.folder / f"part-{number:04}.done"

    @property
    def _nothing_came(self) -> Path:
        return self.folder / "nothing-came"

    def done(self) -> bool:
        """Whether every part is."""
        return self._are_done(0)

    def lost(self) -> bool:
        """Whether a job that ended well left parts undone that another job would do: not on another volume."""
        return not self._nothing_came.exists() and not self._are_done(self.own)

    def clear(self) -> None:
        """Nothing: what is done is not done again."""
        self._nothing_came.unlink(missing_ok=True)

    def refuse_missing(self) -> None:
        """Raises `InputError` where the nodes ended well and their parts are not here."""
        if not self.done():
            self._nothing_came.touch()
            raise InputError(
                f"the nodes ended well but left nothing in {self.folder}: they have another volume at this path. "
                "Give the placement a claim that every node can mount (ReadWriteMany) and start another run"
            )

    def _are_done(self, after: int) -> bool:
        """Whether every part behind the first `after` is."""
        return self.file.is_file() and all(self.mark(number).is_file() for number in range(after + 1, self.count + 1))
