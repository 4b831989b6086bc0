"""Stages that run in forks of one process: same streams, folder and exit code, and no process outlives its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import lives

from stillhouse.cli.preloaded import allowed
from stillhouse.errors import CRASH

SERVER = """
import os, socket, sys, time
from pathlib import Path
from stillhouse.cli.preload import serve
from stillhouse.cli.preloaded import circumstances

def run(argv):
    if argv[0] == "crash":
        raise RuntimeError("crash")
    if argv[0] == "count":
        for number in range(6000):
            Path(argv[1]).write_text(str(number))
            time.sleep(0.1)
    if argv[0] == "wait":
        try:
            Path(argv[1]).write_text(f"{os.getpid()} {os.getppid()}")
            time.sleep(600)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
    print(os.getpid(), os.getppid(), os.getcwd(), os.environ.get("DVC_STAGE"), sys.stdin.read(), *argv)
    return 7

sys.exit(serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), run, circumstances()))
"""
CLIENT = """
import signal, subprocess, sys
from stillhouse.cli.preloaded import address_of, ask

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

def start(listener, owner):
    words = [sys.executable, "-c", sys.argv[2], str(listener.fileno()), str(owner)]
    streams = dict.fromkeys(["stdin", "stdout", "stderr"], subprocess.DEVNULL)
    subprocess.Popen(words, pass_fds=[listener.fileno()], start_new_session=True, **streams)

owner = int(sys.argv[1])
code = ask(address_of(owner), owner, sys.argv[3:], start)
print("none" if code is None else "", end="")
sys.exit(code)
"""
Client = subprocess.Popen[str]
Ask = Callable[..., Client]


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def ask(owner: subprocess.Popen[bytes]) -> Ask:
    """Returns a function that starts a process which asks for a command line."""

    def begin(
        *argv: str, folder: Path | None = None, server: str = SERVER, umask: int = -1, **environment: str
    ) -> Client:
        return subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(owner.pid), server, *argv],
            cwd=folder,
            umask=umask,
            env=os.environ | environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    return begin


def test_a_fork_has_the_folder_streams_and_environment_of_the_process_that_asked(ask: Ask, tmp_path: Path) -> None:
    served_by = set()
    for stage, name in (("one", "first"), ("two", "second")):
        folder = tmp_path / name
        folder.mkdir()
        process = ask("say", "a b", folder=folder, DVC_STAGE=stage)
        said, errors = process.communicate("typed", timeout=60)
        pid, parent, *others = said.split(maxsplit=3)
        assert others == [str(folder), f"{stage} typed say a b\n"] and not errors
        assert process.returncode == 7 and int(pid) != process.pid
        served_by.add(parent)
    assert len(served_by) == 1


def test_another_environment_or_file_mode_is_refused(ask: Ask) -> None:
    assert ask("say").communicate("", timeout=60)[0].endswith("say\n")
    assert ask("say", OMP_NUM_THREADS="7").communicate("", timeout=60)[0] == "none"
    assert ask("say", umask=0o007).communicate("", timeout=60)[0] == "none"


def test_a_process_that_cannot_import_leaves_the_work_to_the_stage(ask: Ask) -> None:
    assert ask("say", server="import no_such_module").communicate("", timeout=60)[0] == "none"


def test_a_crash_is_a_crash(ask: Ask) -> None:
    process = ask("crash")
    assert "RuntimeError: crash" in process.communicate("", timeout=60)[1] and process.returncode == 1


def test_an_interruption_is_passed_on(ask: Ask, tmp_path: Path) -> None:
    process = ask("wait", str(tmp_path / "pids"))
    pid, _ = pids(tmp_path / "pids")
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "interrupted\n" and process.returncode == 130
    assert ended(pid)


def test_a_stopped_stage_stops_its_fork(ask: Ask, tmp_path: Path) -> None:
    process, counter = ask("count", str(tmp_path / "number")), tmp_path / "number"
    assert grows(counter)
    process.send_signal(signal.SIGTSTP)
    assert any(not grows(counter, within=1) for _ in range(20))
    process.send_signal(signal.SIGCONT)
    assert grows(counter)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)


@pytest.mark.parametrize("name", ["dvc", "other"])
def test_the_owner_is_the_dvc_beyond_a_shell(name: str, tmp_path: Path) -> None:
    asked = "from stillhouse.cli.preloaded import _owner; print(_owner())"
    words = ["sh", "-c", f"{sys.executable} -c '{asked}'; true"]
    (tmp_path / name).write_text(
        f"import os, subprocess; print(os.getpid(), flush=True); subprocess.run({words!r}, check=True)"
    )
    said = subprocess.run([sys.executable, tmp_path / name], capture_output=True, text=True, check=True).stdout
    own, owner = said.split()
    assert owner == (own if name == "dvc" else "None")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_stage_takes_its_fork_along(ask: Ask, tmp_path: Path, number: signal.Signals) -> None:
    process = ask("wait", str(tmp_path / "pids"))
    pid, _ = pids(tmp_path / "pids")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert ended(pid)
    assert ask("say").communicate("", timeout=60)[0].endswith("say\n"), "the next stage is served"


def test_a_killed_fork_is_reported(ask: Ask, tmp_path: Path) -> None:
    process = ask("wait", str(tmp_path / "pids"))
    pid, _ = pids(tmp_path / "pids")
    os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL


def test_no_fork_outlives_the_process_that_waits_for_it(ask: Ask, tmp_path: Path) -> None:
    process = ask("wait", str(tmp_path / "pids"))
    pid, parent = pids(tmp_path / "pids")
    os.kill(parent, signal.SIGKILL)
    assert "the process that ran this stage was killed" in process.communicate(timeout=60)[1]
    assert process.returncode == CRASH and ended(pid)


def test_the_process_ends_with_its_owner_but_not_before_its_stage(
    ask: Ask, owner: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    process = ask("wait", str(tmp_path / "pids"))
    pid, parent = pids(tmp_path / "pids")
    owner.kill()
    owner.wait()
    time.sleep(0.5)
    assert not ended(pid, within=0) and not ended(parent, within=0)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130 and ended(parent)


def test_only_a_stage_of_dvc_asks() -> None:
    assert allowed({"DVC_STAGE": "index"}) or Path("/dev/nvidiactl").exists() or sys.gettrace() is not None
    for environment in ({}, {"DVC_STAGE": "index", "RANK": "0"}, {"DVC_STAGE": "index", "STILLHOUSE_PRELOAD": "0"}):
        assert not allowed(environment)


def grows(path: Path, within: float = 30) -> bool:
    """Whether the number in a file grows."""
    before, until = path.read_text() if path.is_file() else "", time.monotonic() + within
    while time.monotonic() < until:
        time.sleep(0.3)
        if path.is_file() and (found := path.read_text()) and found != before:
            return True
    return False


def pids(path: Path) -> tuple[int, int]:
    """The process ids of a fork and of its parent, once the fork has written them."""
    for _ in range(600):
        if path.is_file() and path.read_text().count(" "):
            pid, parent = map(int, path.read_text().split())
            return pid, parent
        time.sleep(0.1)
    raise AssertionError("the fork wrote nothing")


def ended(pid: int, within: float = 30) -> bool:
    """Whether a process is gone, or a zombie whose parent does not wait for it."""
    until = time.monotonic() + within
    while lives(pid):
        if time.monotonic() >= until:
            return False
        time.sleep(0.1)
    return True
