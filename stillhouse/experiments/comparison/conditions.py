"""The conditions of a sweep: the columns or blocks of rows that a paper's table repeats for every variant.

    conditions:
      - {name: bm25, label: BM25 negatives, retriever: retriever_1}
      - {name: mined, label: mined negatives, retriever: retriever_2}

or, on other data, `{name: "1-99", label: "1 % train", overrides: {ingest.reqa_split: 1/99}}`. Variants are compared
only within a condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stillhouse.errors import InputError
from stillhouse.experiments.comparison.sweep_fields import (
    Value,
    plain,
    read_names,
    read_overrides,
    refuse_equal_labels,
    refuse_names,
    refuse_unknown,
)

KEYS = ("name", "label", "retriever", "overrides")


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition. `retriever` is the system to measure, "" for the sweep's. `overrides` apply after the sweep's and
    before a variant's own. `place` is the folder for what they change: the name of the first condition in the file
    with the same overrides."""

    name: str
    label: str = ""
    retriever: str = ""
    overrides: Mapping[str, Value] = field(default_factory=dict)
    place: str

    @property
    def title(self) -> str:
        return self.label or self.name

    def plain(self) -> dict[str, Any]:
        return {key: plain(value) for key, value in vars(self).items() if key != "place"}


def read_conditions(content: Any, where: str) -> tuple[Condition, ...]:
    """The conditions of a sweep's file, () for none. Raises `InputError` like `read_sweep`."""
    if not isinstance(content, list):
        raise InputError(f"{where}: conditions must be a list of mappings, each with a name")
    found: list[Condition] = []
    for number, item in enumerate(content, start=1):
        place = f"{where}: condition {number}"
        refuse_unknown(item, KEYS, place)
        place += f" ({read_names(item, place)})"
        overrides = read_overrides(item.get("overrides", {}), place)
        first = next((of.name for of in found if of.overrides == overrides), item["name"])
        found.append(Condition(**item | {"overrides": overrides, "place": first}))
    refuse_names([condition.name for condition in found], "condition", where)
    refuse_equal_labels([condition.title for condition in found], "condition", where)
    return tuple(found)
