"""Finds sweeps: shipped files, the user's own files, and sweeps described by flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.core.yaml_file import parse_yaml
from stillhouse.experiments.comparison.sweep import OBJECTIVE, Sweep, make_sweep, read_sweep
from stillhouse.pipeline.recipes import SHIPPED, find_file, shipped_files

SWEEPS = SHIPPED / "sweeps"


def shipped_sweeps() -> dict[str, Path]:
    return shipped_files(SWEEPS)


def find_sweep(name: str) -> Sweep:
    """A shipped sweep by name, or any sweep by its file. Raises `InputError` if there is none."""
    return read_sweep(find_file(name, SWEEPS, "sweep"))


def sweep_of_flags(objectives: str, vary: Sequence[str], name: str) -> Sweep:
    """The sweep that `--objectives` and `--vary` describe: every combination of their values.

    The objective `none` means no pre-training; it is allowed only if nothing else varies.
    """
    grid: dict[str, list[object]] = {}
    if objectives:
        grid[OBJECTIVE] = list(split_list(objectives, "--objectives"))
    for text in vary:
        key, equals, values = text.partition("=")
        if not equals:
            raise InputError(
                f"--vary {text}: write STAGE.SETTING=VALUE,VALUE, as in pretraining.encoder_mlm_probability=0.15,0.3"
            )
        if key in grid:
            raise InputError(f"--vary names {key} twice; put all its values in one list")
        grid[key] = parse_yaml(f"[{values}]", f"--vary {key}")
    title = "Pre-training objectives" if list(grid) == [OBJECTIVE] else "Comparison by " + ", ".join(grid)
    return make_sweep(name, {"title": title, "grid": grid, "axis": _axis(grid)}, "the flags of stillhouse compare")


def split_list(text: str, where: str) -> list[str]:
    """The comma-separated words. Raises `InputError` for an empty one."""
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise InputError(f"{where}: {text!r} has an empty value; separate values with commas, for example a,b")
    return words


def seeds_of(text: str) -> tuple[int, ...]:
    """The seeds of `--seeds 1,2,3`."""
    words = split_list(text, "--seeds")
    if not all(word.isdecimal() for word in words) or len(set(words)) < len(words):
        raise InputError(f"--seeds {text}: write different whole numbers separated by commas, for example 1,2,3")
    return tuple(int(word) for word in words)


def with_retriever(sweep: Sweep, name: str) -> Sweep:
    """The sweep with another system to measure. Raises `InputError` if its conditions name their own."""
    if any(condition.retriever for condition in sweep.conditions):
        raise InputError(f"the conditions of sweep {sweep.name} name their own systems; leave --retriever out")
    return dataclasses.replace(sweep, retriever=name)


def under(sweep: Sweep, names: Sequence[str]) -> Sweep:
    """The sweep with only some of its conditions, in its own order."""
    for name in names:
        sweep.under(name)
    return dataclasses.replace(sweep, conditions=tuple(of for of in sweep.conditions if of.name in names))


def listing() -> str:
    """The output of `--list`: every shipped sweep."""
    lines = []
    for name, path in shipped_sweeps().items():
        sweep = read_sweep(path)
        variants = ", ".join(variant.name for variant in sweep.variants)
        lines.append(f"{name}: {sweep.title}\n    {len(sweep.variants)} variants: {variants}")
        if sweep.conditions:
            lines.append(f"    under {', '.join(condition.name for condition in sweep.conditions)}")
        if sweep.recipe:
            lines.append(f"    recipe {sweep.recipe}")
        for word, meaning in sweep.arguments.items():
            lines.append(f"    needs --with {word}=VALUE: {meaning}")
    return "\n".join(lines)


def _axis(grid: Mapping[str, Sequence[object]]) -> str:
    """The setting that varies besides the objective, if its values are numbers."""
    others = [key for key in grid if key != OBJECTIVE]
    numbers = others and all(type(value) in (int, float) for value in grid[others[-1]])
    return others[-1] if numbers else ""
