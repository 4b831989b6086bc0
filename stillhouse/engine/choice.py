"""Which engine is meant by a name: `local`, `ray`, `ray:N` or `ray://HOST:PORT`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from stillhouse.errors import InputError

LOCAL = "local"
_RAY = re.compile(r"ray|ray:[1-9][0-9]*|ray://[^\s/]+:[0-9]+")


class Engine(Protocol):
    """`sentence` is for the log: what works, and where. `elsewhere`: its processes are not on this machine, and
    see of its files those of the work area alone.
    """

    sentence: str
    elsewhere: bool

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """Calls `function` in other processes. Gives what it returns, in the order of `items`.

        A call whose process is killed is tried again; what the function raises is raised here.
        """


@contextmanager
def open_engine(name: str) -> Iterator[Engine | None]:
    """The engine of a name, for as long as the block runs; None for `local`, for which nothing is imported.

    Raises `InputError` for another name, for an engine that is not installed, and for one that does not answer.
    """
    if name == LOCAL:
        yield None
        return
    if not _RAY.fullmatch(name):
        raise InputError(
            f"engine is {name!r}; give local, ray, ray:N for N processes of this machine, or ray://HOST:PORT"
        )
    from stillhouse.engine.ray_engine import open_ray

    with open_ray(name) as engine:
        yield engine
