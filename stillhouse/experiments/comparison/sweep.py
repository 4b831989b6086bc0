"""A sweep as data: variants of one recipe, each with the settings that it changes and what a paper reports of it.

    title: Replace rates
    baseline: "30-50"
    overrides: {pretraining.objective: simlm}          # of every variant
    variants:
      - name: "15-15"
        overrides: {pretraining.encoder_mlm_probability: 0.15, pretraining.decoder_mlm_probability: 0.15}
        published: {MRR@10: 37.6}
      - name: none
        pretraining: false                             # fine-tunes the model that pre-training would start from

or, in the place of `variants`, `grid: {pretraining.objective: [mlm, simlm], pretraining.epochs: [1, 2]}`. A setting is
named `use.field`; whether there is such a one is for the reader of recipes to say. `{word}` as a value stands for what
the person who runs the sweep gives for `word`; `arguments` says what that is. With `conditions` (`conditions.py`) the
variants are compared once under each, and `published` maps a condition to its figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stillhouse.config import nearest
from stillhouse.errors import InputError
from stillhouse.experiments.comparison.conditions import Condition, read_conditions
from stillhouse.experiments.comparison.sweep_fields import (
    Value,
    plain,
    read_overrides,
    read_words,
    refuse_equal_labels,
    refuse_names,
    refuse_unknown,
)
from stillhouse.experiments.comparison.variants import NONE, Variant, grid_variants, read_variant
from stillhouse.yaml_file import read_yaml, shown

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
    "stages",
    "overrides",
    "conditions",
    "variants",
    "grid",
    "losses",
    "axis",
    "examples",
)
TEXTS = ("title", "note", "source", "published_on", "recipe", "retriever", "axis", "baseline")


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What is compared. `overrides` are those of every variant; a variant's own come after them.

    `recipe` is what the variants change where the person who runs the sweep names no other, and `stages` changes the
    recipe's section of that name. `retriever` is the fine-tuning whose retriever is measured, or `reranked`. `losses`
    maps the name of a figure to the training whose lowest held-out loss it is. `axis` is the setting that stands on the
    x axis of a plot, `examples` how many queries are shown that tell the variants apart.
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
    overrides: Mapping[str, Value] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    losses: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """The sweep as plain data that `make_sweep` reads."""
        content = {key: plain(value) for key, value in vars(self).items() if key != "name"}
        content["conditions"] = [condition.plain() for condition in self.conditions]
        return content | {"seeds": list(self.seeds), "variants": [variant.plain() for variant in self.variants]}

    def under(self, name: str) -> Sweep:
        """The sweep under one of its conditions, which is a sweep without any. Raises `InputError` for another name."""
        known = {condition.name: condition for condition in self.conditions}
        if name not in known:
            hint = nearest(name, known) if known else "it has none"
            raise InputError(f"sweep {self.name} has no condition {shown(name)}; {hint}")
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
    refuse_unknown(content, KEYS, where)
    if ("variants" in content) == ("grid" in content):
        raise InputError(f"{where}: give either `variants`, a list, or `grid`, values for settings")
    values = {key: value for key, value in content.items() if key not in ("variants", "grid")}
    for key in TEXTS:
        if not isinstance(values.setdefault(key, Sweep.__dataclass_fields__[key].default), str):
            raise InputError(f"{where}: {key} must be text, not {shown(values[key])}; put it in quotes")
    if "grid" in content:
        variants = grid_variants(content["grid"], f"{where}: grid")
    else:
        if not isinstance(content["variants"], list) or not content["variants"]:
            raise InputError(f"{where}: variants must be a list with at least one variant")
        variants = [read_variant(item, f"{where}: variant {i + 1}") for i, item in enumerate(content["variants"])]
    values["overrides"] = read_overrides(values.get("overrides", {}), where)
    values["seeds"] = _seeds(values.get("seeds", [42]), where)
    values["conditions"] = read_conditions(values.get("conditions", []), where)
    values["arguments"] = read_words(
        values.get("arguments", {}), f"{where}: arguments must map a word to what it stands for"
    )
    values["losses"] = read_words(
        values.get("losses", {}), f"{where}: losses must map a name to a training, as in MLM loss: mlm_loss"
    )
    if not isinstance(values.setdefault("stages", {}), dict):
        raise InputError(f"{where}: stages must map stages to `none` or to their inputs, not {shown(values['stages'])}")
    if type(values.setdefault("examples", 0)) is not int:
        raise InputError(f"{where}: examples must be a whole number, not {shown(values['examples'])}")
    return checked(Sweep(name=name, variants=tuple(variants), **values), where)


def checked(sweep: Sweep, where: str) -> Sweep:
    """The sweep with a baseline. Raises `InputError` for names that cannot be folders or stand twice."""
    names = [variant.name for variant in sweep.variants]
    conditions = [condition.name for condition in sweep.conditions]
    refuse_names(names, "variant", where)
    refuse_equal_labels([variant.title for variant in sweep.variants], "variant", where)
    for name in conditions:
        if name.lower() in [variant.lower() for variant in names]:
            raise InputError(f"{where}: a condition and a variant are called {shown(name)}; rename one of them")
    for variant in sweep.variants:
        for name in variant.published_under:
            if name not in conditions:
                raise InputError(
                    f"{where} ({variant.name}): published: {shown(name)} is no condition; "
                    + (nearest(name, conditions) if conditions else "there are none")
                )
        if conditions and variant.published:
            raise InputError(
                f"{where} ({variant.name}): published must map conditions ({', '.join(conditions)}) to figures"
            )
    if sweep.baseline and sweep.baseline not in names:
        raise InputError(f"{where}: baseline {shown(sweep.baseline)} is no variant; {nearest(sweep.baseline, names)}")
    return replace(sweep, baseline=sweep.baseline or (NONE if NONE in names else names[0]))


def filled(sweep: Sweep, given: Mapping[str, str]) -> Sweep:
    """The sweep with its `{word}` values replaced.

    Raises `InputError` for a word that it does not know, and for one that a value of it stands for and is not given.
    """
    parts = [sweep.overrides, *(of.overrides for of in sweep.conditions), *(of.overrides for of in sweep.variants)]
    used = {value for overrides in parts for value in overrides.values() if isinstance(value, str)}
    for word in given:
        if word not in sweep.arguments:
            hint = nearest(word, sweep.arguments) if sweep.arguments else "it takes none"
            raise InputError(f"sweep {sweep.name} has no argument {word!r}; {hint}")
    for word, meaning in sweep.arguments.items():
        if word not in given and f"{{{word}}}" in used:
            raise InputError(f"sweep {sweep.name} needs --with {word}=VALUE: {meaning}")

    def fill(overrides: Mapping[str, Value]) -> dict[str, Value]:
        found = {f"{{{word}}}": value for word, value in given.items()}
        return {key: found.get(value, value) if isinstance(value, str) else value for key, value in overrides.items()}

    return replace(
        sweep,
        variants=tuple(replace(variant, overrides=fill(variant.overrides)) for variant in sweep.variants),
        conditions=tuple(replace(condition, overrides=fill(condition.overrides)) for condition in sweep.conditions),
        overrides=fill(sweep.overrides),
        arguments={},
    )


def _seeds(content: Any, where: str) -> tuple[int, ...]:
    if not isinstance(content, list) or not content or any(type(seed) is not int or seed < 0 for seed in content):
        raise InputError(f"{where}: seeds must be a list of whole numbers, not {shown(content)}")
    if len(set(content)) < len(content):
        raise InputError(f"{where}: a seed stands twice in {content}; each counts once")
    return tuple(content)
