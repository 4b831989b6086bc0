"""Runs the stages of a `dvc repro` in forks of one process that has imported PyTorch and transformers already.

DVC starts a process for every stage, and each would spend seconds of the processor on the same imports, which is a
quarter of the time of a small run. The first stage that uses a model therefore starts one more process
(`stillhouse.cli.preload`), which does the imports once and lives as long as DVC. Every such stage hands its command
line, environment and open files to it, waits, and passes signals on; a fork does the work.

On a machine with a GPU every stage imports for itself, since a GPU's driver does not survive a fork. So it is outside
Linux, under torchrun and in a debugger. `STILLHOUSE_PRELOAD=0` turns it off.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from stillhouse.errors import CRASH
from stillhouse.steps.spec import Step
from stillhouse.terminal import warn
from stillhouse.workflow.run_progress import STAGE

PRELOAD = "STILLHOUSE_PRELOAD"
LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Device files of NVIDIA's and AMD's drivers, and of Windows' under Linux."""
STREAMS = (0, 1, 2)
LENGTH, CODE, CREDENTIALS = struct.Struct("!I"), struct.Struct("!i"), struct.Struct("iII")
REFUSED = -1
"""The reply "run it yourself". Exit codes of processes are never negative."""
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
            if user_of(connection) != os.getuid():
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


def user_of(connection: socket.socket) -> int:
    """The id of the user at the other end. It must be checked: any user may connect to an abstract socket."""
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
