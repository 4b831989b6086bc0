"""Runs the stages of a `dvc repro` in forks of one process that has imported PyTorch and transformers already.

DVC starts a process for every stage, and each would spend seconds of the processor on the same imports, which is a
quarter of the time of a small run. The first stage that uses a model therefore starts one more process
(`stillhouse.cli.preload`), which does the imports once and lives as long as DVC. Every such stage hands its command
line, environment and open files to it, waits, and passes signals on; a fork does the work.

On a machine with a GPU every stage imports for itself, since a GPU's driver does not survive a fork. So it is outside
Linux, under torchrun and in a debugger. `STILLHOUSE_PRELOAD=0` turns it off.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import selectors
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import Any, cast

from stillhouse.errors import CRASH
from stillhouse.steps.spec import Step
from stillhouse.terminal import warn
from stillhouse.workflow.run_progress import STAGE

PRELOAD = "STILLHOUSE_PRELOAD"
DIFFERS = (STAGE, "_", "SHLVL", "PWD", "OLDPWD")
"""Environment variables in which the stages of one run differ, and which no import reads."""
LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Device files of NVIDIA's and AMD's drivers, and of Windows' under Linux."""
STREAMS = (0, 1, 2)
SIGNALS = {b"i": signal.SIGINT, b"s": signal.SIGSTOP, b"c": signal.SIGCONT}
"""What the asking process sends when it is interrupted, stopped and continued, and what the fork gets."""
LENGTH, CODE, CREDENTIALS = struct.Struct("!I"), struct.Struct("!i"), struct.Struct("iII")
REFUSED = -1
"""The code that stands for "import it yourself"; those of processes are not negative."""
PR_SET_PDEATHSIG = 1
PARENT, BORN = 1, 19
"""Places in `_status`: the parent's id and the time of its start."""


def run_preloaded(step: Step, argv: Sequence[str]) -> int | None:
    """The exit code of a stage that a fork ran; None if this process should run it."""
    uses_model = any(port.kind == "model" for port in (*step.inputs, *step.outputs))
    if not uses_model or not allowed(os.environ):
        return None
    try:
        owner = _owner()
        if owner is None:
            return None
        os.close(os.pidfd_open(owner))
        address = address_of(owner)
    except OSError:  # /proc does not show it, or the kernel has no such descriptors
        return None
    return ask(address, owner, argv, _start)


def allowed(environment: Mapping[str, str]) -> bool:
    """Whether a process with this environment is a stage of DVC that may run in a fork."""
    return (
        hasattr(os, "pidfd_open")
        and STAGE in environment
        and environment.get(PRELOAD) != "0"
        and "RANK" not in environment
        and sys.gettrace() is None
        and not any(Path(file).exists() for file in GPUS)
    )


def ask(address: str, owner: int, argv: Sequence[str], start: Callable[[socket.socket, int], object]) -> int | None:
    """Has the preloaded process of `owner`, which listens at `address`, run a command line; returns the exit code.

    If there is no such process, `start` gets a listening socket and the owner, and starts one. Returns None if the
    process cannot run the command line.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        if connection.fileno() in STREAMS:  # one of them was closed
            return None
        connection.setblocking(False)  # another user's listener with a full queue would never accept
        try:
            connection.connect(address)
        except OSError:
            with socket.socket(socket.AF_UNIX) as listener:
                try:
                    listener.bind(address)
                    listener.listen()
                    start(listener, owner)
                    connection.connect(address)  # waits in the socket's queue while the process imports
                except OSError:
                    return None
        try:
            if _user(connection) != os.getuid():
                return None
            connection.setblocking(True)
            request = {"argv": list(argv), "cwd": str(Path.cwd())} | circumstances()
            text = json.dumps(request).encode()
            socket.send_fds(connection, [LENGTH.pack(len(text))], STREAMS)
            connection.sendall(text)
        except OSError:
            return None
        before = signal.signal(signal.SIGTSTP, partial(_stop, connection))
        try:
            return _answer(connection)
        finally:
            signal.signal(signal.SIGTSTP, before)


def circumstances() -> dict[str, Any]:
    """What a stage has in common with its fork: the program, the environment, and what processes inherit."""
    mask = os.umask(0)
    os.umask(mask)
    return {
        "program": [sys.executable, __file__],
        "environment": dict(os.environ),
        "inherited": [
            os.getpriority(os.PRIO_PROCESS, 0),
            mask,
            sorted(os.sched_getaffinity(0)),
            [list(resource.getrlimit(limit)) for limit in LIMITS],
        ],
    }


def _stop(connection: socket.socket, number: int, frame: FrameType | None) -> None:
    """Ctrl-Z stops the fork, too, until this process continues."""
    with suppress(OSError):
        connection.sendall(b"s")
    os.kill(os.getpid(), signal.SIGSTOP)
    with suppress(OSError):
        connection.sendall(b"c")


def _answer(connection: socket.socket) -> int | None:
    """Waits for the exit code. Passes Ctrl-C on, which a terminal sends to this process only."""
    begun = False
    while True:
        try:
            received = connection.recv(CODE.size, socket.MSG_WAITALL)
        except KeyboardInterrupt:
            if not begun:
                raise
            with suppress(OSError):  # it has ended, and its exit code is still to be read
                connection.sendall(b"i")
            continue
        except OSError:
            received = b""
        if len(received) < CODE.size:
            if not begun:
                return None
            warn("stillhouse: the process that ran this stage was killed; run `dvc repro` again to resume")
            return CRASH
        [code] = CODE.unpack(received)
        if begun or code == REFUSED:
            return None if code == REFUSED else code
        begun = True


def serve(
    listener: socket.socket, owner: int, run: Callable[[Sequence[str]], int], given: Mapping[str, Any]
) -> int | None:
    """Forks for every command line that is asked for in the `given` circumstances, until `owner` has ended.

    Returns in every fork, with the exit code of `run`, and at last in this process, with None.
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
            if _user(connection) != os.getuid():
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
        """Reacts to what the asking process sent, or to its end. Returns whether the fork has not ended yet."""
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
        """Waits for the fork and tells its exit code; of a killed one that of a shell, 128 plus the signal."""
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        with suppress(OSError):
            self.connection.sendall(CODE.pack(code if code >= 0 else 128 - code))
        self.connection.close()
        os.close(self.process)


def _become(folder: str, environment: dict[str, str], files: Sequence[int]) -> None:
    """Makes this fork what the asking process was: its folder, environment and streams, in a process group."""
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


def _user(connection: socket.socket) -> int:
    """The id of the user at the other end; any user may connect to an address of this kind."""
    sent = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return int(CREDENTIALS.unpack(sent)[1])


def address_of(owner: int) -> str:
    """Where the preloaded process of `owner` listens: an abstract socket, which leaves no file behind."""
    return f"\0stillhouse-{os.getuid()}-{owner}-{_status(owner)[BORN]}"


def _owner() -> int | None:
    """The `dvc` that runs this stage, perhaps through shells and other programs; None if there is none."""
    pid = os.getppid()
    while pid > 0:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:4]
        if any(word.rpartition(b"/")[2] == b"dvc" for word in words):  # as in python -m dvc, python /bin/dvc
            return pid
        pid = int(_status(pid)[PARENT])
    return None


def _status(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def _start(listener: socket.socket, owner: int) -> None:
    """Starts the process in a session of its own, so that Ctrl-C reaches the stages only."""
    os.set_inheritable(listener.fileno(), True)
    subprocess.Popen(
        # -P: not the modules of the folder in which the run is
        [sys.executable, "-P", "-m", "stillhouse.cli.preload", str(listener.fileno()), str(owner)],
        pass_fds=[listener.fileno()],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
