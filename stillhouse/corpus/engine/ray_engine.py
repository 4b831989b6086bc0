"""Ray as the engine, `ray`, `ray:N` or `ray://HOST:PORT`: processes on this machine, or on a cluster whose machines
see the same files. `local` is no engine."""

import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from stillhouse.core.errors import CrashElsewhere, InputError
from stillhouse.core.own_machine import own_cores

LOCAL = "local"
_RAY = re.compile(r"ray|ray:[1-9][0-9]*|ray://[^\s/]+:[0-9]+")
RETRIES = 3
"""How often a call is retried after its process was killed."""
AT_ONCE = 3
"""Calls submitted per process: one runs, and the others wait so that the process never idles."""
OBJECT_STORE = 80 << 20
"""Bytes of Ray's shared memory on this machine, close to Ray's minimum, since data is passed in files."""


class RayEngine:
    """`sentence` describes the engine in the log. `elsewhere` means that its processes run on other machines, which
    share only the work area with this one.
    """

    def __init__(self, processes: int, name: str) -> None:
        self._at_once = AT_ONCE * processes
        self.sentence = f"{processes} processes of Ray share the work ({name})"
        self.elsewhere = bool(_address(name))

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """Calls `function` in other processes and yields the results in the order of `items`.

        If a process is killed, its call is retried. An error that the function raises is raised here.
        """
        import ray

        call = ray.remote(_call).options(num_cpus=1, max_retries=RETRIES)
        called, folder = ray.put(function), str(Path.cwd())
        left = iter(items)
        waiting = deque(call.remote(called, item, folder) for item in islice(left, self._at_once))
        # No call is cancelled after an error: Ray 2 aborts a process that cancels a call just as the
        # call ends ("unexpected system state", task_manager.cc). Running calls end by themselves, or
        # with this process.
        while waiting:
            yield _result(waiting[0])
            waiting.popleft()
            waiting.extend(call.remote(called, item, folder) for item in islice(left, 1))


def _call(function: Callable[[Any], Any], item: Any, folder: str) -> Any:
    if Path(folder).is_dir():
        os.chdir(folder)  # paths may be relative, also in messages
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one CPU per process
    return function(item)


def _result(reference: Any) -> Any:
    import ray
    from ray.exceptions import NodeDiedError, OutOfMemoryError, RayTaskError, WorkerCrashedError

    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, (InputError, OSError)):
            raise error.cause from None
        raise
    except (NodeDiedError, OutOfMemoryError, WorkerCrashedError) as error:
        raise CrashElsewhere(
            f"a Ray process was killed {RETRIES + 1} times on one part ({str(error).splitlines()[0]}); if that was for "
            "memory, give the workers more or use fewer CPUs. Run the step again: it keeps the finished parts"
        ) from None


@contextmanager
def open_engine(name: str) -> Iterator[RayEngine | None]:
    """Opens the named engine while the block runs; `ray` is the cluster at `$RAY_ADDRESS`, or this machine. Yields None
    for `local`.

    Raises `InputError` for an unknown name, if Ray is not installed, and if a cluster does not answer.
    """
    if name == LOCAL:
        yield None
        return
    if not _RAY.fullmatch(name):
        raise InputError(
            f"engine is {name!r}; give local, ray, ray:N for N processes on this machine, or ray://HOST:PORT"
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send nothing to Ray's makers
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's default of 15 starves workers on a busy machine
    try:
        import ray
    except ImportError:
        raise InputError("the engine ray needs Ray: pip install 'stillhouse[ray]'") from None
    begun = not ray.is_initialized()
    if begun:
        _begin(name)
    try:
        processes = max(1, int(ray.cluster_resources().get("CPU", 1)))
        yield RayEngine(processes, name)
    finally:
        if begun:
            ray.shutdown()


def _address(name: str) -> str:
    """The address of a cluster, or "" for Ray on this machine only."""
    return name if name.startswith("ray://") else os.environ.get("RAY_ADDRESS", "") if name == "ray" else ""


def _begin(name: str) -> None:
    import ray

    quietly: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    address = _address(name)
    if not address:
        own: dict[str, Any] = {"num_cpus": int(name.partition(":")[2] or own_cores()), "num_gpus": 0}
        try:
            ray.init("local", **own, include_dashboard=False, object_store_memory=OBJECT_STORE, **quietly)
        except Exception as error:  # what Ray raises if its parts do not start within 30 seconds
            ray.shutdown()
            raise CrashElsewhere(
                f"Ray did not start on this machine ({str(error).splitlines()[0]}); run the step again when the "
                "machine is less busy, or without an engine"
            ) from error
        return
    try:
        ray.init(address, **quietly)
    except (ConnectionError, TimeoutError, RuntimeError, ValueError) as error:
        raise InputError(
            f"Ray at {address} does not answer ({str(error).splitlines()[0]}); check the RayCluster and its head "
            "service, or leave the engine out"
        ) from None
