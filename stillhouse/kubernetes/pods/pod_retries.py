"""Starts a task's process again in its pod, after a failure that another try may mend.

    python3 -m stillhouse.kubernetes.pods.pod_retries kfp.dsl.executor_main --executor_input …

Argo as Kubeflow Pipelines installs it starts a pod again that vanished, but not one whose process failed, and neither a
pipeline nor its Kubernetes platform can ask for the latter. So the pod's first process is this one, which imports
little. A new try finds what a new pod would: the same arguments and volumes, and the last checkpoint.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from stillhouse.errors import CRASH
from stillhouse.terminal import warn

RETRIES = "STILLHOUSE_RETRIES"
"""Environment variable: how often a failed process is started again; absent for never."""
PAUSE = "STILLHOUSE_RETRY_AFTER_SECONDS"
"""Environment variable: seconds before the first retry."""
PAUSE_FACTOR = 2.0
"""Each pause before a retry is this many times as long as the one before."""
IN_A_POD = "KUBERNETES_SERVICE_HOST"
"""Environment variable that Kubernetes gives to every container."""
STOPS = (signal.SIGINT, signal.SIGTERM)
PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h


def main(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs the module `words[0]` with the arguments behind it; the exit code of its last try.

    Outside a pod this process becomes that of the module: a run on this machine shows a failure at once.
    """
    command = [sys.executable, "-m", *words]
    if not environment.get(IN_A_POD):
        os.execv(sys.executable, command)
    return Tries(command, int(environment.get(RETRIES) or 0), float(environment.get(PAUSE) or 0)).run()


def can_be_mended(code: int) -> bool:
    """Whether another try may end better: after a crash or a signal from elsewhere.

    Not after bad input, a refusal or an interrupt. `code` is that of `subprocess`, negative for a signal.
    """
    return code == CRASH or (code < 0 and -code not in STOPS)


class Tries:
    """The tries of one command, `retries` beyond the first, with pauses in seconds that grow from `pause`."""

    def __init__(self, command: Sequence[str], retries: int, pause: float) -> None:
        self.command, self.retries, self.pause = list(command), retries, pause
        self.process: subprocess.Popen[bytes] | None = None
        self.stop = 0
        self.stopped = threading.Event()

    def run(self) -> int:
        """The exit code of the last try: 128 and its number for a signal, as of shells.

        SIGINT and SIGTERM are handed on to the process, after which none is started.
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
                    f"try {number + 1} of {self.retries + 1} ended with {how}, its lines above say why; "
                    f"the next begins in {pause:g} s and goes on from its last checkpoint, if it has one"
                )
                if self.stopped.wait(pause):
                    break
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return code if code >= 0 else 128 - code

    def _try(self) -> int:
        self.process = subprocess.Popen(self.command)
        if self.stop:  # it came while the process was starting
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
    """Makes this process the parent of those whose own ends, so that it can end them."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_orphans() -> None:
    """Ends what a process that was killed left behind, such as torchrun's workers: they would hold the GPUs."""
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
            # The name, in brackets, may hold anything; the state and the parent follow it.
            if int(status.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(status.parent.name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
