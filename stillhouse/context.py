"""What a step is given beside its data: a durable work folder, the device, progress bars, a log line, its watcher."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from stillhouse.errors import InputError
from stillhouse.monitoring.activity import write_line
from stillhouse.monitoring.monitor import SILENT, Monitor

T = TypeVar("T")

WORK_ROOT = "STILLHOUSE_WORK"
DEVICE = "STILLHOUSE_DEVICE"
ENGINE = "STILLHOUSE_ENGINE"
QUIET = "STILLHOUSE_QUIET"
UPDATE_EVERY = 0.1
"""Seconds between two updates of a bar: each costs as much as reading a short row."""


@dataclass(frozen=True)
class Context:
    """`work` is a folder that outlives a killed run; its name is the digest of what it is the work of (`work_name`).

    `monitor` hears of every bar's progress, and of what a training reports to it. `engine` names what shares the work
    of a step that can be divided among processes or machines (`stillhouse.engine`). `shares` is a folder of what other
    machines made of the same inputs and settings, for a step that shares its work: the outputs are the same without it.
    """

    work: Path
    device: str = "auto"
    engine: str = "local"
    quiet: bool = False
    monitor: Monitor = SILENT
    shares: Path | None = None

    def torch_device(self) -> Any:
        """The `torch.device` to compute on: the one asked for, or a GPU where there is one.

        Raises `InputError` where a GPU was asked for and there is none.
        """
        import torch

        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("this machine has no GPU that PyTorch can use; leave --device out, or give --device cpu")
        if self.device == "cpu" or not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))

    def progress(self, items: Iterable[T], what: str, total: int | None = None, unit: str = "item") -> Iterator[T]:
        """Iterates with a bar that shows the rate and the time left; silent where nobody watches."""
        with self.bar(what, total if total is not None else _length(items), unit) as bar:
            waiting, shown = 0, time.monotonic()
            try:
                for item in items:
                    yield item
                    waiting += 1
                    now = time.monotonic()
                    if now - shown >= UPDATE_EVERY:
                        bar.update(waiting)
                        waiting, shown = 0, now
            finally:
                bar.update(waiting)

    def progress_of(self, what: str, unit: str, items: Iterable[T], total: int) -> Iterator[T]:
        """`progress`, for whoever is given what it says already."""
        return self.progress(items, what, total, unit)

    def bar(self, what: str, total: int | None, unit: str = "item", done: int = 0) -> Any:
        """A bar for work that the caller counts: `bar.update(n)`. `done` was done by an earlier run.

        On a terminal it is drawn there; a log gets plain lines (`stillhouse.monitoring.bar`).
        """
        from stillhouse.monitoring.bar import make_bar

        return make_bar(what, self.monitor, total, done, unit, self.quiet)

    def log(self, line: str) -> None:
        if not self.quiet:
            write_line(line)


def _length(items: Any) -> int | None:
    return len(items) if hasattr(items, "__len__") else None


def hush_libraries() -> None:
    """Keeps other libraries' bars and load reports out of the log; what is said there is Stillhouse's own.

    A person's own choice stays: that of the environment, and what a program sets later.
    """
    transformers = sys.modules.get("transformers")
    if transformers is not None and "TRANSFORMERS_VERBOSITY" not in os.environ:
        # It has read its environment already: a notebook imported it first, or a model of ours by its name.
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def work_root() -> Path:
    """Where work folders live: `$STILLHOUSE_WORK` (a volume on a cluster) or `.stillhouse/work` here."""
    return Path(os.environ.get(WORK_ROOT) or Path(".stillhouse") / "work")


def embeddings_root() -> Path:
    """Where passages' vectors are kept from run to run, one folder a model: in the work area, beside work folders."""
    return work_root() / "embeddings"


def rank() -> int:
    """Which of several processes this is, as `torchrun` says; 0 for one alone."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """How many processes `torchrun` started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def device() -> str:
    return os.environ.get(DEVICE) or "auto"


def engine() -> str:
    return os.environ.get(ENGINE) or "local"


def quiet() -> bool:
    return os.environ.get(QUIET, "") not in ("", "0")


def say(line: str) -> None:
    """A log line of what has no context."""
    if not quiet():
        write_line(line)
