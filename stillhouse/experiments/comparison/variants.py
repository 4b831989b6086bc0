"""The variants of a sweep, one per row of its table, written out or as a grid of values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from stillhouse.errors import InputError
from stillhouse.experiments.comparison.sweep_fields import (
    Value,
    plain,
    read_figures,
    read_names,
    read_overrides,
    read_words,
    refuse_unknown,
)
from stillhouse.yaml_file import shown

NONE = "none"
"""The variant without pre-training."""
UNTRAINED = ("bm25", "zero_shot")
"""Systems without training that a variant can be, besides the retrievers of a recipe."""
KEYS = ("name", "label", "pretraining", "retriever", "overrides", "inputs", "published")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One row of the table. `published` maps a measure's name in the paper to the paper's value.

    `retriever` is the system to measure, "" for the sweep's or the condition's. `inputs` replaces inputs of the graph:
    {"reranker.init": "pretraining/encoder"}. In a sweep with conditions, `published_under` has the paper's values by
    condition and `published` is empty.
    """

    name: str
    label: str = ""
    pretraining: bool = True
    retriever: str = ""
    overrides: Mapping[str, Value] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
    published_under: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self.label or self.name

    def plain(self) -> dict[str, Any]:
        content = {key: plain(value) for key, value in vars(self).items() if key != "published_under"}
        by_condition = {condition: dict(figures) for condition, figures in self.published_under.items()}
        return content | {"published": by_condition} if by_condition else content


def read_variant(item: Any, where: str) -> Variant:
    """A variant of a sweep's file. Raises `InputError` like `read_sweep`."""
    refuse_unknown(item, KEYS, where)
    where = f"{where} ({read_names(item, where)})"
    pretraining = item.get("pretraining", item.get("retriever") not in UNTRAINED)
    if type(pretraining) is not bool:
        raise InputError(f"{where}: pretraining must be true or false, not {shown(pretraining)}")
    overrides = read_overrides(item.get("overrides", {}), where)
    inputs = read_words(
        item.get("inputs", {}),
        f"{where}: inputs must map use.input to use/output, as in reranker.init: pretraining/encoder",
    )
    if not pretraining and any(key.startswith("pretraining.") for key in overrides):
        raise InputError(f"{where}: it has no pre-training, so it cannot change settings of pretraining")
    published, by_condition = item.get("published", {}), {}
    if isinstance(published, dict) and published and all(isinstance(of, dict) for of in published.values()):
        by_condition = {str(name): read_figures(of, f"{where}, {name}") for name, of in published.items()}
        published = {}
    read = {"pretraining": pretraining, "overrides": overrides, "inputs": inputs}
    return Variant(**item | read | {"published": read_figures(published, where), "published_under": by_condition})


def grid_variants(grid: Any, where: str) -> list[Variant]:
    """Every combination of the settings' values, with the last setting changing fastest."""
    if not isinstance(grid, dict) or not grid:
        raise InputError(f"{where}: must map settings such as pretraining.objective to lists of values")
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise InputError(f"{where}: {key} must have a list of values, not {shown(values)}")
    variants = []
    for combination in product(*grid.values()):
        chosen = read_overrides(dict(zip(grid, combination)), where)
        objective, others = chosen.get("pretraining.objective"), len(chosen) > 1
        if objective == NONE and not others:
            variants.append(Variant(name=NONE, label="no pre-training", pretraining=False))
            continue
        if objective == NONE:
            raise InputError(f"{where}: {NONE!r} has no pre-training to vary; use `variants` instead of a grid")
        names = [key.split(".")[1] for key in chosen]
        words = list(zip(names, map(str, chosen.values())))
        parts = [value if name == "objective" else f"{name}-{value}" for name, value in words]
        label = ", ".join(
            value if name == "objective" else f"{name.replace('_', ' ')} {value}" for name, value in words
        )
        folder = "-".join(re.sub(r"[^A-Za-z0-9._+-]+", "_", part) for part in parts)
        variants.append(Variant(name=folder, label=label, overrides=chosen))
    return variants
