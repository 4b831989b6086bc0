"""A sweep as data: variants of one recipe, each with its changed settings and the figures that a paper reports.

A sweep is a YAML file; `make_sweep` also makes one from flags. docs/compare.md describes the format:

    title: "Objectives"
    seeds: [1, 2]
    variants:
      - {name: none, pretraining: false, published: {MRR@10: 33.7}}
      - {name: simlm, overrides: {pretraining.objective: simlm}, published: {MRR@10: 38.0}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from stillhouse.core.config import read_as, refuse_unknown
from stillhouse.core.errors import InputError
from stillhouse.core.yaml_file import read_yaml, shown

NONE = "none"
"""The objective and the variant without pre-training."""
UNTRAINED = ("bm25", "zero_shot")
"""Systems without training that a variant can use, besides the retrievers of a recipe."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
RESERVED = ("shared", "reference")
SETTING = re.compile(r"[a-z0-9_]+\.[a-z0-9_]+")
OBJECTIVE = "pretraining.objective"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a condition and a variant have in common. `retriever` is the system to measure, "" for the usual one."""

    name: str
    label: str = ""
    retriever: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_overrides(self.overrides)

    @property
    def title(self) -> str:
        return self.label or self.name


@dataclass(frozen=True, kw_only=True)
class Condition(Entry):
    """A way to measure every variant: of another system, or with other settings.

    `place` is the first condition with the same settings, which shares what it computes.
    """

    place: str = ""


@dataclass(frozen=True, kw_only=True)
class Variant(Entry):
    """One row of the table. `published` maps a measure's name in the paper to the paper's value.

    Without a `retriever` of its own, the sweep's or the condition's is measured. `inputs` replaces inputs of the graph:
    {"reranker.init": "pretraining/encoder"}. In a sweep with conditions, `published_under` has the paper's values by
    condition and `published` is empty.
    """

    pretraining: bool = True
    inputs: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
    published_under: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pretraining and any(key.startswith("pretraining.") for key in self.overrides):
            raise InputError("it has no pre-training, so it cannot change settings of pretraining")


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A comparison. `overrides` apply to every variant, before the variant's own.

    `source` and `published_on` say where published figures are from, and on what. `losses` maps a name to a training
    whose held-out loss is shown, `axis` is the setting of a plot, and `examples` the number of queries shown.
    `arguments` are the words in braces that the command fills in, with their meaning.
    """

    name: str
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...] = (42,)
    baseline: str = ""
    title: str = ""
    note: str = ""
    source: str = ""
    published_on: str = ""
    recipe: str = ""
    retriever: str = "retriever_1"
    axis: str = ""
    examples: int = 0
    arguments: Mapping[str, str] = field(default_factory=dict)
    stages: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    losses: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_overrides(self.overrides)
        if not self.variants:
            raise InputError("variants must be a list with at least one variant")
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"seeds must be different whole numbers of at least 0, not {list(self.seeds)}")
        _refuse_names("variant", self.variants)
        _refuse_names("condition", self.conditions)
        first = {repr(of.overrides): of.name for of in reversed(self.conditions)}
        placed = tuple(replace(of, place=of.place or first[repr(of.overrides)]) for of in self.conditions)
        object.__setattr__(self, "conditions", placed)
        names = [row.name for row in self.variants]
        if not self.baseline:
            object.__setattr__(self, "baseline", NONE if NONE in names else names[0])
        refuse_unknown(self.baseline, names, "the baseline is not a variant:")

    def plain(self) -> dict[str, Any]:
        """The content of a file that describes the same sweep."""

        def short(part: Any) -> dict[str, Any]:
            return {key: value for key, value in asdict(part).items() if value not in ("", {}, (), [])}

        rows = {"variants": self.variants, "conditions": self.conditions}
        content = short(self) | {name: [short(row) for row in of] for name, of in rows.items() if of}
        del content["name"]
        return content

    def under(self, name: str) -> Sweep:
        """The sweep under one of its conditions, with the published figures of this condition."""
        known = {condition.name: condition for condition in self.conditions}
        refuse_unknown(name, known, f"sweep {self.name} has no condition")
        condition = known[name]
        return replace(
            self,
            name=f"{self.name}-{name}",
            title=f"{self.title or self.name}: {condition.title}",
            retriever=condition.retriever or self.retriever,
            overrides=dict(self.overrides) | dict(condition.overrides),
            conditions=(),
            variants=tuple(
                replace(variant, published=variant.published_under.get(name, {}), published_under={})
                for variant in self.variants
            ),
        )

    @property
    def measures(self) -> list[str]:
        """The names of the published measures, in the order of the file."""
        return list(dict.fromkeys(name for variant in self.variants for name in variant.published))


def read_sweep(path: Path) -> Sweep:
    """Read a sweep. Raises `InputError`, which names the place, for whatever is wrong with it."""
    try:
        content = read_yaml(path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; `stillhouse compare --list` lists the sweeps") from None
    return make_sweep(path.stem, content, str(path))


def make_sweep(name: str, content: Any, where: str) -> Sweep:
    """Make a sweep of the content of a file, with `variants` or a `grid`."""
    if isinstance(content, dict) and ("variants" in content) == ("grid" in content):
        raise InputError(f"{where}: give either `variants` (a list) or `grid` (values for settings)")
    if isinstance(content, dict):
        content = {"name": name, **content}
        if "grid" in content:
            content["variants"] = grid_variants(content.pop("grid"), f"{where}: grid")
        elif isinstance(content["variants"], list):
            content["variants"] = [_variant(item) for item in content["variants"]]
    return read_as(Sweep, content, where)


def grid_variants(grid: Any, where: str) -> list[dict[str, Any]]:
    """A variant for each combination of the values of some settings."""
    if not isinstance(grid, dict) or not grid or not all(isinstance(of, list) and of for of in grid.values()):
        raise InputError(f"{where}: must map settings such as {OBJECTIVE} to lists of values, not {shown(grid)}")
    return [_of_grid(dict(zip(grid, combination)), where) for combination in product(*grid.values())]


def _of_grid(chosen: dict[str, Any], where: str) -> dict[str, Any]:
    if chosen.get(OBJECTIVE) == NONE:
        if len(chosen) > 1:
            raise InputError(f"{where}: {NONE!r} has no pre-training to vary; use `variants` instead of a grid")
        return {"name": NONE, "label": "no pre-training", "pretraining": False}
    words = [(str(key).rpartition(".")[2], str(value)) for key, value in chosen.items()]
    parts = [value if name == "objective" else f"{name}-{value}" for name, value in words]
    labels = [value if name == "objective" else f"{name.replace('_', ' ')} {value}" for name, value in words]
    folder = "-".join(re.sub(r"[^A-Za-z0-9._+-]+", "_", part) for part in parts)
    return {"name": folder, "label": ", ".join(labels), "overrides": chosen}


def _variant(item: Any) -> Any:
    """What a file says of a variant; figures by condition in a field of their own."""
    if not isinstance(item, dict):
        return item
    published = item.get("published")
    if isinstance(published, dict) and published and all(isinstance(of, dict) for of in published.values()):
        item = {**item, "published": {}, "published_under": published}
    return {"pretraining": item.get("retriever") not in UNTRAINED, **item}


def refuse_overrides(overrides: Mapping[str, Any]) -> None:
    """Refuse unknown settings, invalid values, and seeds."""
    for key, value in overrides.items():
        if not SETTING.fullmatch(key):
            raise InputError(f"{shown(key)} is not a setting; write STAGE.SETTING, for example {OBJECTIVE}")
        members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
        if not all(part is None or type(part) in (bool, int, float, str) for part in members):
            raise InputError(f"{key} must be a plain value, or a list of these, not {shown(value)}")
        if key.endswith(".seed"):
            raise InputError(f"{key} cannot be varied here; list the seeds under `seeds`")


def _refuse_names(what: str, entries: Sequence[Entry]) -> None:
    names, titles = [entry.name.lower() for entry in entries], [entry.title for entry in entries]
    for name, title in ((entry.name, entry.title) for entry in entries):
        if not NAME.fullmatch(name) or name in RESERVED:
            raise InputError(
                f"a {what} cannot be called {shown(name)}; use letters, digits and . _ + -, but not {RESERVED}"
            )
        if names.count(name.lower()) > 1:
            raise InputError(f"two {what}s are called {shown(name)}; give each a different name")
        if titles.count(title) > 1:
            raise InputError(f"two {what}s are labelled {shown(title)}; give each a different label")


def filled(sweep: Sweep, given: Mapping[str, str]) -> Sweep:
    """Fill in the arguments of a sweep. Raises `InputError` for one that is missing or unknown."""
    parts = [sweep.overrides, *(of.overrides for of in sweep.conditions), *(of.overrides for of in sweep.variants)]
    used = json.dumps([dict(overrides) for overrides in parts])
    for word in given:
        refuse_unknown(word, sweep.arguments, f"sweep {sweep.name} has no argument")
    for word, meaning in sweep.arguments.items():
        if word not in given and f'"{{{word}}}"' in used:
            raise InputError(f"sweep {sweep.name} needs --with {word}=VALUE: {meaning}")
    words = {f"{{{word}}}": text for word, text in given.items()}
    return replace(
        sweep,
        variants=tuple(replace(of, overrides=_filled(of.overrides, words)) for of in sweep.variants),
        conditions=tuple(replace(of, overrides=_filled(of.overrides, words)) for of in sweep.conditions),
        overrides=_filled(sweep.overrides, words),
        arguments={},
    )


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return words.get(value, value)
    if isinstance(value, Mapping):
        return {key: _filled(part, words) for key, part in value.items()}
    return [_filled(part, words) for part in value] if isinstance(value, list) else value
