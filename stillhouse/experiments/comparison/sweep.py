"""A sweep as data: variants of one recipe, each with its changed settings and the figures that a paper reports.

    title: Replace rates
    baseline: "30-50"
    overrides: {pretraining.objective: simlm}          # for every variant
    variants:
      - name: "15-15"
        overrides: {pretraining.encoder_mlm_probability: 0.15, pretraining.decoder_mlm_probability: 0.15}
        published: {MRR@10: 37.6}
      - name: none
        pretraining: false                             # fine-tunes the initial model without pre-training

or, instead of `variants`, `grid: {pretraining.objective: [mlm, simlm], pretraining.epochs: [1, 2]}`. A setting is
named `use.field`; the recipe reader checks that it exists. A value `{word}` is a placeholder that the user fills in
with `--with`; `arguments` describes it. With `conditions` (`conditions.py`) the variants are compared under each
condition, and `published` maps conditions to figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    """A comparison. `overrides` apply to every variant, before the variant's own.

    `recipe` is the default recipe that the variants change, and `stages` changes its section of that name. `retriever`
    is the system whose run is measured, any that the recipe evaluates. `losses` maps the name of a figure to a
    training; the figure is its lowest held-out loss. `axis` is the setting on the x axis of a plot, and `examples` the
    number of example queries on which the variants differ.
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
        """The sweep as plain data that `make_sweep` can read."""
        content = {key: plain(value) for key, value in vars(self).items() if key != "name"}
        content["conditions"] = [condition.plain() for condition in self.conditions]
        return content | {"seeds": list(self.seeds), "variants": [variant.plain() for variant in self.variants]}

    def under(self, name: str) -> Sweep:
        """The sweep for one condition, as a sweep without conditions. Raises `InputError` for an unknown name."""
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
    """Read a sweep's file. Raises `InputError` for unknown, missing or invalid keys."""
    try:
        content = read_yaml(path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; `stillhouse compare --list` lists the sweeps") from None
    return make_sweep(path.stem, content, str(path))


def make_sweep(name: str, content: Any, where: str) -> Sweep:
    """A sweep from plain data; `where` names the source in messages. Raises `InputError` like `read_sweep`."""
    refuse_unknown(content, KEYS, where)
    if ("variants" in content) == ("grid" in content):
        raise InputError(f"{where}: give either `variants` (a list) or `grid` (values for settings)")
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
        values.get("arguments", {}), f"{where}: arguments must map a word to its description"
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
    """The sweep with a baseline. Raises `InputError` for names that are duplicate or invalid as folders."""
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
                    f"{where} ({variant.name}): published: {shown(name)} is not a condition; "
                    + (nearest(name, conditions) if conditions else "there are none")
                )
        if conditions and variant.published:
            raise InputError(
                f"{where} ({variant.name}): published must map conditions ({', '.join(conditions)}) to figures"
            )
    if sweep.baseline and sweep.baseline not in names:
        raise InputError(
            f"{where}: baseline {shown(sweep.baseline)} is not a variant; {nearest(sweep.baseline, names)}"
        )
    return replace(sweep, baseline=sweep.baseline or (NONE if NONE in names else names[0]))


def filled(sweep: Sweep, given: Mapping[str, str]) -> Sweep:
    """The sweep with its `{word}` values filled in.

    Raises `InputError` for an unknown word, and for a word that the sweep uses and that is not given.
    """
    parts = [sweep.overrides, *(of.overrides for of in sweep.conditions), *(of.overrides for of in sweep.variants)]
    used = {text for overrides in parts for value in overrides.values() for text in _texts(value)}
    for word in given:
        if word not in sweep.arguments:
            hint = nearest(word, sweep.arguments) if sweep.arguments else "it takes none"
            raise InputError(f"sweep {sweep.name} has no argument {word!r}; {hint}")
    for word, meaning in sweep.arguments.items():
        if word not in given and f"{{{word}}}" in used:
            raise InputError(f"sweep {sweep.name} needs --with {word}=VALUE: {meaning}")

    def fill(overrides: Mapping[str, Value]) -> dict[str, Value]:
        return {
            key: _filled(value, {f"{{{word}}}": text for word, text in given.items()})
            for key, value in overrides.items()
        }

    return replace(
        sweep,
        variants=tuple(replace(variant, overrides=fill(variant.overrides)) for variant in sweep.variants),
        conditions=tuple(replace(condition, overrides=fill(condition.overrides)) for condition in sweep.conditions),
        overrides=fill(sweep.overrides),
        arguments={},
    )


def _texts(value: Any) -> Iterator[str]:
    """The texts in a value, those in its lists and mappings included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _filled(value: Any, found: Mapping[str, str]) -> Any:
    """A value with every text that is a `{word}` replaced, in its lists and mappings too."""
    if isinstance(value, str):
        return found.get(value, value)
    if isinstance(value, dict):
        return {key: _filled(part, found) for key, part in value.items()}
    return [_filled(part, found) for part in value] if isinstance(value, list) else value


def _seeds(content: Any, where: str) -> tuple[int, ...]:
    if not isinstance(content, list) or not content or any(type(seed) is not int or seed < 0 for seed in content):
        raise InputError(f"{where}: seeds must be a list of whole numbers, not {shown(content)}")
    if len(set(content)) < len(content):
        raise InputError(f"{where}: {content} contains a seed twice; list each seed once")
    return tuple(content)
