"""Defines a part of the suite, and lists all parts in the order of the page.

A *side* is one system doing one thing: a function that prepares everything and returns the function to time. That
function may return `seconds` of its own if the unit is a step or a batch, a `value` or list of values that all sides of
a row must share, and `waiting`, the share of the time that it waited for data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OURS = "stillhouse"
Timed = Callable[[], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Job:
    """One size of a part: its folder, which `prepare` filled, and the folder of the real data sets."""

    size: Any
    folder: Path
    data: Path


Side = Callable[[Job], Timed]


@dataclass(frozen=True)
class Row:
    """One comparison. A peer's name begins with the module that it needs, a comma behind it where more is said."""

    name: str
    ours: Side
    peers: Mapping[str, Side] = field(default_factory=dict)
    same: float = 1e-3
    """Values that differ by no more than this share are called the same."""


@dataclass(frozen=True)
class Part:
    """One table. `unit` is what sizes count and rates are of; `needs` are data sets below the folder of data.

    `prepare` fills the folder of a size, which all sides then read.
    """

    name: str
    about: str
    unit: str
    sizes: tuple[Any, ...]
    rows: tuple[Row, ...]
    prepare: Callable[[Job], None] = lambda _: None
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.sizes) == 3, f"{self.name} has {len(self.sizes)} sizes"
        assert len({row.name for row in self.rows}) == len(self.rows), f"{self.name} names a row twice"


def parts() -> dict[str, Part]:
    """All parts by name. The modules are light: what a side needs it imports when it is asked for."""
    import suite_corpus
    import suite_models
    import suite_retrieval
    import suite_runs
    import suite_training

    modules = (suite_corpus, suite_training, suite_models, suite_retrieval, suite_runs)
    return {part.name: part for module in modules for part in module.PARTS}
