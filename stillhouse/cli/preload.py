"""`python -m stillhouse.cli.preload FD PID`: imports what steps that use a model import, and forks for every stage.

FD is a listening socket, PID the `dvc repro` whose stages it serves. `stillhouse.cli.preloaded` is the client.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper
from typing import Any, cast

from stillhouse.cli import main
from stillhouse.cli.preloaded import CODE, LENGTH, PRELOAD, REFUSED, STREAMS, circumstances, user_of
from stillhouse.workflow.run_progress import STAGE

DIFFERS = (STAGE, "_", "SHLVL", "PWD", "OLDPWD")
"""Environment variables in which the stages of one run differ, and which no import reads."""
SIGNALS = {b"i": signal.SIGINT, b"s": signal.SIGSTOP, b"c": signal.SIGCONT}
"""What the client sends when it is interrupted, stopped and continued, and the signal that the fork gets."""
PR_SET_PDEATHSIG = 1


def preload() -> None:
    """Imports PyTorch, transformers and the steps, which takes seconds of processor time."""
    import transformers.modeling_utils  # noqa: F401

    import stillhouse.retrieval.fine_tuning.retriever_training
    import stillhouse.retrieval.models.cross_encoder
    import stillhouse.retrieval.search.hybrid
    import stillhouse.workflow.step_command  # noqa: F401
    from stillhouse.steps.registry import steps

    steps()
    gc.freeze()  # so that no collection copies what the forks share


def serve(
    listener: socket.socket, owner: int, run: Callable[[Sequence[str]], int], given: Mapping[str, Any]
) -> int | None:
    """Forks for every command line that a client with the `given` circumstances sends, until `owner` has ended.

    Returns the exit code of `run` in every fork and, at the end, None in this process.
    """
    running: list[_Stage] = []
    owned = os.pidfd_open(owner)
    with selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        ready.register(owned, selectors.EVENT_READ)
        while owned in ready.get_map() or running:
            for key, _ in ready.select():
                if key.fileobj == owned:
                    ready.unregister(owned)
                    ready.unregister(listener)
                    listener.close()
                    break
                if key.fileobj == listener:
                    stage = _Stage.begin(listener, given)
                    if stage is None:
                        continue
                    if stage.pid == 0:
                        return run(stage.argv)
                    running.append(stage)
                    ready.register(stage.process, selectors.EVENT_READ, stage)
                    ready.register(stage.connection, selectors.EVENT_READ, stage)
                elif key.data in running and not key.data.goes_on(key.fd):
                    running.remove(key.data)
                    ready.unregister(key.data.process)
                    ready.unregister(key.data.connection)
                    key.data.end()
    return None


@dataclass(eq=False)
class _Stage:
    """A command line that a fork runs; `pid` is 0 in the fork."""

    argv: list[str]
    connection: socket.socket
    pid: int
    process: int = -1
    """A file descriptor that is readable once the fork has ended."""

    @classmethod
    def begin(cls, listener: socket.socket, given: Mapping[str, Any]) -> _Stage | None:
        """Accepts a request and forks; None if another user sent it or the circumstances are not those `given`."""
        connection, _ = listener.accept()
        files: list[int] = []
        try:
            if user_of(connection) != os.getuid():
                raise OSError
            length, files, _, _ = socket.recv_fds(connection, LENGTH.size, len(STREAMS))
            with connection.makefile("rb") as sent:
                request = json.loads(sent.read(*LENGTH.unpack(length)))
            if _compared(request) != _compared(given):
                connection.sendall(CODE.pack(REFUSED))
                raise OSError
            pid = os.fork()
        except (OSError, ValueError, struct.error):
            connection.close()
            for file in files:
                os.close(file)
            return None
        stage = cls(request["argv"], connection, pid)
        if pid:
            with suppress(OSError):  # as the fork does; whoever comes first, it can be killed from here on
                os.setpgid(pid, pid)
            stage.process = os.pidfd_open(pid)
            with suppress(OSError):  # if it is gone, its end is the next event
                connection.sendall(CODE.pack(0))
        else:
            connection.close()
            listener.close()
            _become(request["cwd"], request["environment"], files)
        for file in files:
            os.close(file)
        return stage

    def goes_on(self, ready: int) -> bool:
        """Passes the client's signal on to the fork, or kills it if the client ended. Returns whether the fork runs."""
        if ready == self.process:
            return False
        try:
            sent = self.connection.recv(1)
        except OSError:
            sent = b""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, SIGNALS.get(sent, signal.SIGKILL))
        return sent in SIGNALS

    def end(self) -> None:
        """Waits for the fork and sends its exit code to the client; 128 plus the signal if it was killed."""
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        with suppress(OSError):
            self.connection.sendall(CODE.pack(code if code >= 0 else 128 - code))
        self.connection.close()
        os.close(self.process)


def _become(folder: str, environment: dict[str, str], files: Sequence[int]) -> None:
    """Gives this fork the folder, environment and streams of the client, and a process group of its own."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # does not outlive the process that reports its end
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, file in zip(STREAMS, files, strict=True):
        os.dup2(file, stream)
    for output in (sys.stdout, sys.stderr):  # they were opened on /dev/null
        cast(TextIOWrapper, output).reconfigure(line_buffering=output is sys.stderr or output.isatty())
    os.environ.update(environment | {PRELOAD: "0"})  # a fork of its own would ask again
    os.chdir(folder)


def _compared(request: Mapping[str, Any]) -> list[Any]:
    environment = {name: value for name, value in request["environment"].items() if name not in DIFFERS}
    return [request["program"], environment, request["inherited"]]


if __name__ == "__main__":
    given = circumstances()  # before the imports, which may set variables
    kernel = ctypes.CDLL(None)
    kernel.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # until it serves, it ends with the stage that waits for it
    preload()
    kernel.prctl(PR_SET_PDEATHSIG, 0)
    sys.exit(serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), main, given))
