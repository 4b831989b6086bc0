"""What a step gets besides its data: a durable work folder, the device, progress bars, the log and the monitor."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import write_line
from stillhouse.core.monitoring.monitor import SILENT, Monitor

T = TypeVar("T")

WORK_ROOT = "STILLHOUSE_WORK"
NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where Kubernetes names a pod's namespace."""
DEVICE = "STILLHOUSE_DEVICE"
ENGINE = "STILLHOUSE_ENGINE"
QUIET = "STILLHOUSE_QUIET"
UPDATE_EVERY = 0.1
"""Seconds between two updates of a bar; an update costs as much as reading a short row."""


@dataclass(frozen=True)
class Context:
    """`work` is a folder that outlives a killed run; its name is a digest of the step's work (`work_name`).

    `monitor` receives the progress of every bar and the reports of a training. `engine` names the engine that divides a
    step's work among processes or machines (`corpus.engine`). `shares` is a folder with the results that other
    machines computed from the same inputs and settings; the outputs are the same without it.
    """

    work: Path
    device: str = "auto"
    engine: str = "local"
    quiet: bool = False
    monitor: Monitor = SILENT
    shares: Path | None = None

    def torch_device(self) -> Any:
        """The `torch.device` to compute on: the requested one, or a GPU if there is one.

        Raises `InputError` if a GPU is requested and there is none, and if there are more processes than GPUs.
        """
        import torch

        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("this machine has no GPU that PyTorch can use; leave --device out, or give --device cpu")
        if self.device == "cpu" or not torch.cuda.is_available():
            return torch.device("cpu")
        own, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if own >= count:
            raise InputError(f"process {own + 1} has no GPU: start {count} on this machine, or give --device cpu")
        return torch.device("cuda", own)

    def progress(self, items: Iterable[T], what: str, total: int | None = None, unit: str = "item") -> Iterator[T]:
        """Iterates with a bar that shows the rate and the time left; silent if nobody watches."""
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

    def bar(self, what: str, total: int | None, unit: str = "item", done: int = 0) -> Any:
        """A bar for work that the caller counts with `bar.update(n)`; `done` items were done by an earlier run.

        A terminal shows a bar, a log gets plain lines (`stillhouse.core.monitoring.bar`).
        """
        from stillhouse.core.monitoring.bar import make_bar

        return make_bar(what, self.monitor, total, done, unit, self.quiet)

    def log(self, line: str) -> None:
        if not self.quiet:
            write_line(line)


def _length(items: Any) -> int | None:
    return len(items) if hasattr(items, "__len__") else None


def hush_libraries() -> None:
    """Keeps the bars and load reports of other libraries out of the log.

    The user's own choice is respected: environment variables, and whatever a program sets later.
    """
    transformers = sys.modules.get("transformers")
    if transformers is not None and "TRANSFORMERS_VERBOSITY" not in os.environ:
        # It has already read its environment: a notebook, or one of our models, imported it first.
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def work_root() -> Path:
    """The folder of work folders: `$STILLHOUSE_WORK` (a volume on a cluster), or `.stillhouse/work` here."""
    return Path(os.environ.get(WORK_ROOT) or Path(".stillhouse") / "work")


def embeddings_root() -> Path:
    """The folder that keeps passage vectors from run to run, one subfolder per model, beside the work folders."""
    return work_root() / "embeddings"


def answers_root() -> Path:
    """The folder that keeps the answers of language models from run to run, beside the work folders."""
    return work_root() / "answers"


def rank() -> int:
    """The rank that `torchrun` gave this process; 0 without it."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """The number of processes that `torchrun` started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def device() -> str:
    return os.environ.get(DEVICE) or "auto"


def engine() -> str:
    return os.environ.get(ENGINE) or "local"


def quiet() -> bool:
    return os.environ.get(QUIET, "") not in ("", "0")


def say(line: str) -> None:
    """Writes a log line for code that has no context."""
    if not quiet():
        write_line(line)


def own_namespace() -> str:
    """The namespace of this pod; "" outside a cluster."""
    return NAMESPACE.read_text(encoding="utf-8").strip() if NAMESPACE.is_file() else ""
