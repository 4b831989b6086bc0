"""A sweep as data: variants of one recipe, each with the settings that it changes and what a paper reports of it.

    title: Replace rates
    baseline: "30-50"
    overrides: {pretraining.objective: simlm}          # of every variant
    variants:
      - name: "15-15"
        overrides: {pretraining.encoder_mask: 0.15, pretraining.decoder_mask: 0.15}
        published: {MRR@10: 37.6}
      - name: none
        pretraining: false                             # fine-tunes the model that pre-training would start from

or, in the place of `variants`, `grid: {pretraining.objective: [mlm, simlm], pretraining.epochs: [1, 2]}`. A setting is
named `use.field`; whether there is such a one is for the reader of recipes to say. `{word}` as a value stands for what
the person who runs the sweep gives for `word`; `arguments` says what that is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from stillhouse.config import nearest
from stillhouse.errors import InputError
from stillhouse.yaml_file import read_yaml, shown

Scalar = bool | int | float | str
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
RESERVED = ("shared", "reference")
NONE = "none"
"""The variant without pre-training."""
KEYS = (
    "title",
    "note",
    "source",
    "published_on",
    "recipe",
    "retriever",
    "baseline",
    "seeds",
    "arguments",
    "overrides",
    "variants",
    "grid",
    "axis",
    "examples",
)
VARIANT_KEYS = ("name", "label", "pretraining", "overrides", "inputs", "published")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One row of the table. `published` maps a measure's name, as the paper has it, to the paper's value.

    `inputs` gives uses another input than the graph does: {"reranker.init": "pretraining/encoder"}.
    """

    name: str
    label: str = ""
    pretraining: bool = True
    overrides: Mapping[str, Scalar] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self.label or self.name


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What is compared. `overrides` are those of every variant; a variant's own come after them.

    `retriever` is the fine-tuning whose retriever is measured, or `reranked`, `axis` the setting that stands on the x
    axis of a plot, `examples` how many queries are shown that tell the variants apart.
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
    overrides: Mapping[str, Scalar] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """The sweep as plain data that `make_sweep` reads."""
        content = {key: value for key, value in vars(self).items() if key not in ("name", "variants", "seeds")}
        content = {key: dict(value) if isinstance(value, Mapping) else value for key, value in content.items()}
        variants = [
            {key: dict(value) if isinstance(value, Mapping) else value for key, value in vars(v).items()}
            for v in self.variants
        ]
        return content | {"seeds": list(self.seeds), "variants": variants}

    @property
    def measures(self) -> list[str]:
        """The measures that the paper reports, in its order."""
        return list(dict.fromkeys(name for variant in self.variants for name in variant.published))

    @property
    def base(self) -> Variant:
        """The variant that the others are tested against."""
        return next(variant for variant in self.variants if variant.name == self.baseline)


def read_sweep(path: Path) -> Sweep:
    """Reads a sweep's file. Raises `InputError` for a key that is unknown, missing or ill-formed."""
    try:
        content = read_yaml(path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; `stillhouse compare --list` shows sweeps") from None
    return make_sweep(path.stem, content, str(path))


def make_sweep(name: str, content: Any, where: str) -> Sweep:
    """A sweep from plain data; `where` names the place for messages. Raises `InputError` as `read_sweep`."""
    _known(content, KEYS, where)
    if ("variants" in content) == ("grid" in content):
        raise InputError(f"{where}: give either `variants`, a list, or `grid`, values for settings")
    values = {key: value for key, value in content.items() if key not in ("variants", "grid")}
    for key in ("title", "note", "source", "published_on", "recipe", "retriever", "axis", "baseline"):
        if not isinstance(values.setdefault(key, Sweep.__dataclass_fields__[key].default), str):
            raise InputError(f"{where}: {key} must be text, not {shown(values[key])}; put it in quotes")
    if "grid" in content:
        variants = grid_variants(content["grid"], f"{where}: grid")
    else:
        if not isinstance(content["variants"], list) or not content["variants"]:
            raise InputError(f"{where}: variants must be a list with at least one variant")
        variants = [_variant(item, f"{where}: variant {i + 1}") for i, item in enumerate(content["variants"])]
    values["overrides"] = _overrides(values.get("overrides", {}), where)
    values["seeds"] = _seeds(values.get("seeds", [42]), where)
    arguments = values.setdefault("arguments", {})
    if not isinstance(arguments, dict) or not all(isinstance(text, str) for text in arguments.values()):
        raise InputError(f"{where}: arguments must map a word to what it stands for")
    if type(values.setdefault("examples", 0)) is not int:
        raise InputError(f"{where}: examples must be a whole number, not {shown(values['examples'])}")
    return checked(Sweep(name=name, variants=tuple(variants), **values), where)


def checked(sweep: Sweep, where: str) -> Sweep:
    """The sweep with a baseline. Raises `InputError` for names that cannot be folders or stand twice."""
    names = [variant.name for variant in sweep.variants]
    for name in names:
        if not NAME.fullmatch(name) or name in RESERVED:
            raise InputError(
                f"{where}: a variant cannot be called {shown(name)}; use letters, digits and . _ + -, and no {RESERVED}"
            )
        if names.count(name) > 1 or [other.lower() for other in names].count(name.lower()) > 1:
            raise InputError(f"{where}: two variants are called {shown(name)}; give each a name of its own")
    titles = [variant.title for variant in sweep.variants]
    for title in titles:
        if titles.count(title) > 1:
            raise InputError(f"{where}: two variants are labelled {shown(title)}; give each a label of its own")
    if sweep.baseline and sweep.baseline not in names:
        raise InputError(f"{where}: baseline {shown(sweep.baseline)} is no variant; {nearest(sweep.baseline, names)}")
    baseline = sweep.baseline or (NONE if NONE in names else names[0])
    return Sweep(**{**vars(sweep), "baseline": baseline})


def grid_variants(grid: Any, where: str) -> list[Variant]:
    """Every combination of the values of some settings, the last setting changing fastest."""
    if not isinstance(grid, dict) or not grid:
        raise InputError(f"{where}: must map settings such as pretraining.objective to lists of values")
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise InputError(f"{where}: {key} must have a list of values, not {shown(values)}")
    variants = []
    for combination in product(*grid.values()):
        chosen = _overrides(dict(zip(grid, combination)), where)
        objective, others = chosen.get("pretraining.objective"), len(chosen) > 1
        if objective == NONE and not others:
            variants.append(Variant(name=NONE, label="no pre-training", pretraining=False))
            continue
        if objective == NONE:
            raise InputError(f"{where}: {NONE!r} has no pre-training to vary; write `variants` for that")
        names = [key.split(".")[1] for key in chosen]
        words = list(zip(names, map(str, chosen.values())))
        parts = [value if name == "objective" else f"{name}-{value}" for name, value in words]
        label = ", ".join(
            value if name == "objective" else f"{name.replace('_', ' ')} {value}" for name, value in words
        )
        folder = "-".join(re.sub(r"[^A-Za-z0-9._+-]+", "_", part) for part in parts)
        variants.append(Variant(name=folder, label=label, overrides=chosen))
    return variants


def filled(sweep: Sweep, given: Mapping[str, str]) -> Sweep:
    """The sweep with its `{word}` values replaced. Raises `InputError` for a word that is missing or not asked for."""
    for word in given:
        if word not in sweep.arguments:
            hint = nearest(word, sweep.arguments) if sweep.arguments else "it takes none"
            raise InputError(f"sweep {sweep.name} has no argument {word!r}; {hint}")
    for word, meaning in sweep.arguments.items():
        if word not in given:
            raise InputError(f"sweep {sweep.name} needs --with {word}=VALUE: {meaning}")

    def fill(overrides: Mapping[str, Scalar]) -> dict[str, Scalar]:
        found = {f"{{{word}}}": value for word, value in given.items()}
        return {key: found.get(value, value) if isinstance(value, str) else value for key, value in overrides.items()}

    variants = tuple(Variant(**{**vars(variant), "overrides": fill(variant.overrides)}) for variant in sweep.variants)
    return Sweep(**{**vars(sweep), "variants": variants, "overrides": fill(sweep.overrides), "arguments": {}})


def _variant(item: Any, where: str) -> Variant:
    _known(item, VARIANT_KEYS, where)
    if not isinstance(item.get("name"), str) or not isinstance(item.get("label", ""), str):
        raise InputError(f"{where}: its name and label must be text, not {shown(item.get('name'))}; put them in quotes")
    where = f"{where} ({item['name']})"
    pretraining = item.get("pretraining", True)
    if type(pretraining) is not bool:
        raise InputError(f"{where}: pretraining must be true or false, not {shown(pretraining)}")
    published = item.get("published", {})
    if not isinstance(published, dict) or any(type(value) not in (int, float) for value in published.values()):
        raise InputError(f"{where}: published must map measures to numbers, not {shown(published)}")
    overrides = _overrides(item.get("overrides", {}), where)
    inputs = item.get("inputs", {})
    if not isinstance(inputs, dict) or not all(isinstance(word, str) for pair in inputs.items() for word in pair):
        raise InputError(f"{where}: inputs must map use.input to use/output, as in reranker.init: pretraining/encoder")
    if not pretraining and any(key.startswith("pretraining.") for key in overrides):
        raise InputError(f"{where}: it has no pre-training, so it cannot change a setting of pretraining")
    return Variant(**{**item, "overrides": overrides, "published": {k: float(v) for k, v in published.items()}})


def _known(content: Any, keys: Sequence[str], where: str) -> None:
    if not isinstance(content, dict):
        raise InputError(f"{where}: must be a mapping with the keys {', '.join(keys)}")
    for key in content:
        if key not in keys:
            raise InputError(f"{where}: unknown key {shown(key)}; {nearest(str(key), keys)}")


def _overrides(content: Any, where: str) -> dict[str, Scalar]:
    if not isinstance(content, dict):
        raise InputError(f"{where}: overrides must map settings such as pretraining.objective to values")
    for key, value in content.items():
        if not isinstance(key, str) or not re.fullmatch(r"[a-z0-9_]+\.[a-z0-9_]+", key):
            raise InputError(
                f"{where}: {shown(key)} is no setting; write use.field, for instance pretraining.objective"
            )
        if type(value) not in (bool, int, float, str):
            raise InputError(f"{where}: {key} must be one plain value, not {shown(value)}")
        if key.endswith(".seed"):
            raise InputError(f"{where}: {key} cannot be varied here; list the seeds under `seeds`")
    return dict(content)


def _seeds(content: Any, where: str) -> tuple[int, ...]:
    if not isinstance(content, list) or not content or any(type(seed) is not int or seed < 0 for seed in content):
        raise InputError(f"{where}: seeds must be a list of whole numbers, not {shown(content)}")
    if len(set(content)) < len(content):
        raise InputError(f"{where}: a seed stands twice in {content}; each counts once")
    return tuple(content)
