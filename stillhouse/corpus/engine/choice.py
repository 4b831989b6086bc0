"""Opens an engine by its name: `local`, `ray`, `ray:N` or `ray://HOST:PORT`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from stillhouse.core.errors import InputError

LOCAL = "local"
_RAY = re.compile(r"ray|ray:[1-9][0-9]*|ray://[^\s/]+:[0-9]+")


class Engine(Protocol):
    """`sentence` describes the engine in the log. `elsewhere` means that its processes run on other machines, which
    share only the work area with this one.
    """

    sentence: str
    elsewhere: bool

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """Calls `function` in other processes and yields the results in the order of `items`.

        If a process is killed, its call is retried. An error that the function raises is raised here.
        """


@contextmanager
def open_engine(name: str) -> Iterator[Engine | None]:
    """Opens the named engine while the block runs. Yields None for `local`, without importing anything.

    Raises `InputError` for an unknown name, and for an engine that is not installed or does not answer.
    """
    if name == LOCAL:
        yield None
        return
    if not _RAY.fullmatch(name):
        raise InputError(
            f"engine is {name!r}; give local, ray, ray:N for N processes on this machine, or ray://HOST:PORT"
        )
    from stillhouse.corpus.engine.ray_engine import open_ray

    with open_ray(name) as engine:
        yield engine
