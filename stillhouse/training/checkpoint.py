"""The checkpoint of a training: everything that a resumed run needs, in one verified file."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor

from stillhouse.core.context import rank
from stillhouse.core.curves import CurveRow
from stillhouse.core.monitoring.activity import doing
from stillhouse.models.acceleration.processes import agreed

NAME = re.compile(r"checkpoint-(\d+)-([0-9a-f]{64})\.pt")


class _Hashed:
    """A writable file that computes the digest of what is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def _write(content: dict[str, Any], path: Path) -> str:
    """Write a file, flush it to disk and return its digest."""
    with path.open("wb") as file:
        hashed = _Hashed(file)
        try:
            torch.save(content, cast(IO[bytes], hashed))
        except RuntimeError as error:
            if isinstance(error.__context__, OSError):  # PyTorch reports a full disk as an error about positions
                raise error.__context__ from None
            raise
        file.flush()
        os.fsync(file.fileno())
    return hashed.digest.hexdigest()


def trained_state(model: torch.nn.Module) -> dict[str, Tensor]:
    """The state of a model without its frozen parameters, which with LoRA are nearly all of it."""
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    return {name: value for name, value in model.state_dict().items() if name not in frozen}


@dataclass(frozen=True)
class Checkpoint:
    """Keeps a training's state in `folder` as `checkpoint-<step>-<SHA-256>.pt`, replaced at every `save`.

    A file that does not match the digest in its name is reported to `log`, removed and never read.
    """

    folder: Path
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LambdaLR
    log: Callable[[str], None]

    @doing("writing a checkpoint")
    def save(self, rows: list[CurveRow], best: dict[str, Tensor], losses: list[float], step: int) -> Path:
        """Write the state after `step` steps and remove the previous one."""
        content = {
            "model": trained_state(self.model),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "rows": [
                [row.step, row.train_loss, row.heldout_loss, dict(row.signals), dict(row.intervals)] for row in rows
            ],
            "best": best,
            "losses": losses,
            "step": step,
        }
        partial = self.folder / "checkpoint.partial"
        try:
            digest = _write(content, partial)
            before = self._files()
            path = self.folder / f"checkpoint-{step}-{digest}.pt"
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)  # frees the space if the disk was full
        for old in before:
            if old != path:
                old.unlink()
        return path

    @doing("reading the checkpoint")
    def restore(self) -> tuple[list[CurveRow], dict[str, Any], list[float], int]:
        """The curves so far, the best parameters, the losses since the last row and the number of completed steps.

        All are empty if there is no checkpoint. With several processes, the first one chooses the file. Raises
        `RuntimeError` if another one does not find it.
        """
        whole = None if rank() else next(filter(self._whole, self._files()), None)
        name = agreed(whole and whole.name)
        if name is None:
            return [], {}, [], 0
        path = self.folder / name
        if not path.is_file():  # a shared volume may show a node an old state
            raise RuntimeError(f"this process does not see {path}, which the first process resumes from; try again")
        content = torch.load(path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(content["model"], strict=False)
        self.optimizer.load_state_dict(content["optimizer"])
        self.schedule.load_state_dict(content["schedule"])
        return [CurveRow(*row) for row in content["rows"]], content["best"], content["losses"], content["step"]

    def last(self) -> Path | None:
        """The newest checkpoint."""
        return next(iter(self._files()), None)

    def _files(self) -> list[Path]:
        """All checkpoints, newest first; there are two if a run was killed between writing and removing."""
        found = {path: NAME.fullmatch(path.name) for path in self.folder.glob("checkpoint-*.pt")}
        return sorted((path for path in found if found[path]), key=lambda path: -int(path.name.split("-")[1]))

    def _whole(self, path: Path) -> bool:
        named = NAME.fullmatch(path.name)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if named and named[2] == digest:
            return True
        self.log(f"{path} is damaged: its bytes are not what was written; it is removed and not used")
        path.unlink()
        return False
