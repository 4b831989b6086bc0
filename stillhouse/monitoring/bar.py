"""A progress bar that a monitor hears of too."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm

from stillhouse.monitoring.monitor import Monitor
from stillhouse.terminal import visible


class WatchedBar(tqdm):
    """A tqdm bar, shown or not, whose progress goes to `monitor` as that of `work`."""

    def __init__(self, work: str, monitor: Monitor, **how: Any) -> None:
        self.work, self.monitor, self.over = work, monitor, False
        super().__init__(desc=visible(work), **how)
        monitor.began(work, how.get("total"), how.get("initial", 0))

    def update(self, n: float | None = 1) -> bool | None:
        self.monitor.advanced(self.work, int(n or 0))
        return super().update(n)

    def close(self) -> None:
        super().close()
        if not self.over:
            self.over = True
            self.monitor.ended(self.work)
