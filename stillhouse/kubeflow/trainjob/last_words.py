"""The last lines of each node of a job, kept for when its pod is gone.

JobSet removes the pods of a failed job, with their logs and exit codes, possibly before Trainer reports that the job
has failed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stillhouse.kubeflow.cluster.waiting import SENTENCE

KEPT = 60
"""How many lines of a node to keep: enough for a stack trace and what torchrun writes after it."""
ENDED = "node ended with exit code "
"""The start of a failed node's last line (`stillhouse.kubeflow.trainjob.node`)."""
NO_SENTENCE = "this is a crash, not bad input"
"""The start of the sentence about a crash, which follows the reason."""
ERROR = re.compile(r"(?:\[rank\d+\]:? ?)?((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt)\b(?:: .*)?)")
"""The line of a stack trace that names the error; PyTorch may put the process before it."""


@dataclass
class Said:
    """The last lines of one pod: its node's number, the time of the last line, and the lines."""

    node: str
    moment: str = ""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def code(self) -> int | None:
        """The exit code that the node named, or None: it did not fail, or was killed before it could report it."""
        number = self.last.removeprefix(ENDED)
        return int(number) if number != self.last and number.isdecimal() else None

    @property
    def last(self) -> str:
        """The last non-empty line, or ""."""
        return next((line.strip() for line in reversed(self.lines) if line.strip()), "")


def reason(lines: Iterable[str]) -> str:
    """Why a process ended, from its last lines: its sentence, or the error of a stack trace, or ""."""
    error = ""
    for line in reversed(list(lines)):
        if line.startswith(SENTENCE) and not line.removeprefix(SENTENCE).startswith(NO_SENTENCE):
            return line.removeprefix(SENTENCE)
        named = ERROR.fullmatch(line.rstrip())
        error = error or (named[1] if named else "")
    return error


def newest(said: Mapping[str, Said]) -> dict[str, Said]:
    """The last lines by node number, in the nodes' order; if a node had several pods, from the latest to write."""
    found = {one.node: one for one in sorted(said.values(), key=lambda one: one.moment)}
    return dict(sorted(found.items()))
