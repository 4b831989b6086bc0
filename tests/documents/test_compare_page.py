"""The commands that compare pre-trainings, made small: everything is planned, but only a part is run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented_commands import ROOT, section
from small_workspaces import write_corpus
from terminal import Terminal

from stillhouse.cli import compare
from stillhouse.experiments.comparison.plan import Plan, plans
from stillhouse.experiments.comparison.sweep import Sweep, read_sweep
from stillhouse.experiments.comparison.sweeps import shipped_sweeps
from stillhouse.pipeline.small import small

PAGE = "docs/compare.md"
Planned = dict[str, set[tuple[str, int]]]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Planned:
    """The variants and seeds that each sweep asks for. The first, the last and the baseline are run, with one seed."""
    found: Planned = {}
    asked: list[Sweep] = []
    chosen = compare.chosen_sweep

    def cut(arguments: Any) -> Sweep:
        asked.append(chosen(arguments))
        sweep = asked[-1]
        names = {sweep.variants[0].name, sweep.variants[-1].name, sweep.baseline}
        kept = tuple(variant for variant in sweep.variants if variant.name in names)
        return replace(sweep, variants=kept, seeds=sweep.seeds[:1], conditions=sweep.conditions[:1])

    def planned(sweep: Sweep, recipe: Any, where: str, adjust: Any) -> Mapping[str, Plan]:
        whole = [job for plan in plans(asked[-1], recipe, where, small).values() for job in plan.jobs]
        found[sweep.name] = {(job.variant, job.seed) for job in whole}
        return plans(sweep, recipe, where, small)

    monkeypatch.setattr(compare, "chosen_sweep", cut)
    monkeypatch.setattr(compare, "plans", planned)
    return found


def compared(folder: str) -> set[str]:
    """Return the variants of a comparison, all of which must have been measured."""
    variants = json.loads(Path(folder, "comparison.json").read_text())["variants"]
    assert not any(variant.get("failures") for variant in variants.values())
    assert all("test" in variant for variant in variants.values()) and Path(folder, "comparison.html").is_file()
    return set(variants)


@pytest.mark.long
def test_objectives_settings_and_sweeps_are_compared(terminal: Terminal, planned: Planned) -> None:
    for heading in ("Comparing pre-training objectives", "Any setting", "Sweeps", "The papers' tables"):
        terminal.type_all(section("docs/compare.md", heading))
    rows = [variant.name for variant in read_sweep(shipped_sweeps()["simlm-table8"]).variants]
    assert planned.pop("simlm-table8") == {(variant, seed) for variant in rows for seed in (1, 2)}
    assert planned["objectives"] == {(one, seed) for one in ("none", "mlm", "simlm", "bow") for seed in (1, 2, 3)}
    assert len(planned["masks"]) == 3 and len(compared("compare/masks")) == 2
    assert compared("compare/objectives") == {"none", "bow"}
    assert compared("compare/simlm-table8") == {rows[0], "30-50", rows[-1]}
    assert "bm25" in compared("try-table/1-99")


@pytest.mark.long
def test_a_recipe_of_one_s_own_is_compared(terminal: Terminal, planned: Planned) -> None:
    shutil.copy(ROOT / "stillhouse" / "recipes" / "simlm.yaml", "params.yaml")
    terminal.type_all(section("docs/pretrain.md", "Is it working, and when to stop"))
    assert compared("compare/mine") == {"none", "simlm"} and len(planned["mine"]) == 12
    assert compared("compare/all-objectives") == {"none", "cdmae_bow"} and len(planned["all-objectives"]) == 10


@pytest.mark.long
def test_objectives_are_compared_in_a_workspace(terminal: Terminal, planned: Planned) -> None:
    """The page's workspace has the recipe `labelled`, which does not pre-train."""
    shutil.copy(ROOT / "stillhouse" / "recipes" / "labelled.yaml", "params.yaml")
    write_corpus(Path("path/to/corpus"))
    terminal.type_all(section("docs/train.md", "Which pre-training helps on my corpus?"))
    assert compared("compare") == {"none", "cdmae"} and len(planned["compare"]) == 10


def test_a_pipeline_is_written(terminal: Terminal) -> None:
    terminal.type_all(section(PAGE, "As a Kubeflow pipeline"))
    written = yaml.safe_load(Path("compare.yaml").read_text().split("---")[0])
    assert written["pipelineInfo"]["name"] == "compare-objectives"
