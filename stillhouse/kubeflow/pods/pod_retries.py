"""Restarts a task's process in its pod after a failure that another try may fix.

    python3 -m stillhouse.kubeflow.pods.pod_retries RETRIES PAUSE PIPELINE TASK MODULE FUNCTION …

Argo, as Kubeflow Pipelines installs it, replaces a pod that vanished but not one whose process failed, and a pipeline
cannot ask for that. So this is the pod's first process, and it imports little. A new try finds what a new pod would
find: the same arguments and volumes, and the last checkpoint.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from stillhouse.core.errors import CRASH
from stillhouse.core.monitoring.settings import PIPELINE, TASK
from stillhouse.core.terminal import warn

PAUSE_FACTOR = 2.0
"""Each pause before a retry is longer than the previous one by this factor."""
STOPS = (signal.SIGINT, signal.SIGTERM)
PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h


def main(words: Sequence[str]) -> int:
    """Calls a task's function (`pods/task.py`), and returns the exit code of the last try.

    `words` are how often to restart a failed process, the seconds before the first retry, the labels of its metrics,
    and the arguments of `pods/task.py`.
    """
    retries, pause, pipeline, task, *call = words
    os.environ.update({PIPELINE: pipeline, TASK: task})
    return Tries([sys.executable, "-m", "stillhouse.kubeflow.pods.task", *call], int(retries), float(pause)).run()


def can_be_mended(code: int) -> bool:
    """Whether another try may succeed: after a crash or a signal from elsewhere.

    False after bad input, a refusal or an interrupt. `code` is as in `subprocess`, negative for a signal.
    """
    return code == CRASH or (code < 0 and -code not in STOPS)


class Tries:
    """The tries of one command: `retries` after the first, with pauses in seconds that grow from `pause`."""

    def __init__(self, command: Sequence[str], retries: int, pause: float) -> None:
        self.command, self.retries, self.pause = list(command), retries, pause
        self.process: subprocess.Popen[bytes] | None = None
        self.stop = 0
        self.stopped = threading.Event()

    def run(self) -> int:
        """Runs the tries and returns the exit code of the last: 128 plus the number for a signal, as in shells.

        SIGINT and SIGTERM are passed on to the process and prevent further tries.
        """
        before = {number: signal.signal(number, self._hand_on) for number in STOPS}
        _adopt_orphans()
        try:
            for number in range(self.retries + 1):
                code = self._try()
                if self.stop or number == self.retries or not can_be_mended(code):
                    break
                pause = self.pause * PAUSE_FACTOR**number
                how = f"exit code {code}" if code > 0 else signal.Signals(-code).name
                _say(
                    f"try {number + 1} of {self.retries + 1} ended with {how} (its lines above say why); "
                    f"the next one starts in {pause:g} s and continues from the last checkpoint, if there is one"
                )
                if self.stopped.wait(pause):
                    break
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return code if code >= 0 else 128 - code

    def _try(self) -> int:
        self.process = subprocess.Popen(self.command)
        if self.stop:  # it arrived while the process was starting
            self.process.send_signal(self.stop)
        code = self.process.wait()
        _end_orphans()
        return code

    def _hand_on(self, number: int, frame: FrameType | None) -> None:
        self.stop = number
        self.stopped.set()
        if self.process:
            self.process.send_signal(number)


def _say(sentence: str) -> None:
    warn(f"[retries] {sentence}")


def _adopt_orphans() -> None:
    """Makes this process the parent of orphaned descendants, so that it can end them."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_orphans() -> None:
    """Ends what a killed process left behind, such as torchrun's workers, which would keep the GPUs busy."""
    while orphans := _children():
        for orphan in orphans:
            with suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(orphan, 0)


def _children() -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            # The name, in brackets, may contain anything; the state and the parent follow it.
            if int(status.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(status.parent.name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
