"""The last lines that each node of a job said, kept for when its pod is gone.

JobSet removes the pods of a job that failed, with their logs and exit codes, and it may do so before Trainer says that
the job has failed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stillhouse.kubernetes.cluster.waiting import SENTENCE

KEPT = 60
"""How many lines of a node are kept: a stack trace, and what torchrun writes after it."""
ENDED = "node ended with exit code "
"""How the last line of a node that failed begins (`stillhouse.kubernetes.trainjob.node`)."""
NO_SENTENCE = "this is a crash, not bad input"
"""How the sentence of a crash begins, whose reason stands above it."""
ERROR = re.compile(r"(?:\[rank\d+\]:? ?)?((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt)\b(?:: .*)?)")
"""The line of a stack trace that names the error; PyTorch may put the process before it."""


@dataclass
class Said:
    """The last lines of one pod: its node's number, the moment of the last line, and the lines."""

    node: str
    moment: str = ""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def code(self) -> int | None:
        """The exit code that the node named, or None: it did not fail, or was killed before it could say so."""
        number = self.last.removeprefix(ENDED)
        return int(number) if number != self.last and number.isdecimal() else None

    @property
    def last(self) -> str:
        """The last line that is not empty; "" for none."""
        return next((line.strip() for line in reversed(self.lines) if line.strip()), "")


def reason(lines: Iterable[str]) -> str:
    """Why a process ended, by its last lines: its sentence, or the error of a stack trace; "" for neither."""
    error = ""
    for line in reversed(list(lines)):
        if line.startswith(SENTENCE) and not line.removeprefix(SENTENCE).startswith(NO_SENTENCE):
            return line.removeprefix(SENTENCE)
        named = ERROR.fullmatch(line.rstrip())
        error = error or (named[1] if named else "")
    return error


def newest(said: Mapping[str, Said]) -> dict[str, Said]:
    """The last lines by the number of the node: of each node's pods the one that spoke last, in the nodes' order."""
    found = {one.node: one for one in sorted(said.values(), key=lambda one: one.moment)}
    return dict(sorted(found.items()))
