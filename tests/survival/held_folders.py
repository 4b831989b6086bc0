"""A folder that another process holds, as one that works in it does."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from stillhouse.core.lock import only_process

SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def held(folder: Path) -> Iterator[tuple[BaseProcess, Connection]]:
    """Yield a process that holds the folder, and a connection: any message over it ends the process."""
    mine, its = SPAWN.Pipe()
    process = SPAWN.Process(target=hold, args=(folder, its))
    process.start()
    try:
        assert mine.recv() == "held"
        yield process, mine
    finally:
        process.kill()
        process.join()


def hold(folder: Path, talk: Connection) -> None:
    with only_process(folder):
        talk.send("held")
        talk.recv()
