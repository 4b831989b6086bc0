"""Wherever a name can be given, a former name is an error that gives the new one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stillhouse.artifacts import MANIFEST, digest_file, read_manifest, write_manifest
from stillhouse.cli import main
from stillhouse.config import build, field_types, nearest
from stillhouse.errors import InputError
from stillhouse.experiments.comparison.sweep import read_sweep
from stillhouse.experiments.comparison.sweeps import SWEEPS, find_sweep
from stillhouse.former_names import PAPERS, SECTIONS, SETTINGS, STEPS, present_name
from stillhouse.steps.registry import find_step, steps
from stillhouse.steps.spec import Step
from stillhouse.tuning.space import read_space
from stillhouse.workflow.graph import APART, USES
from stillhouse.workflow.recipe_settings import read_settings, with_settings
from stillhouse.workflow.recipes import configs, find_recipe, load_recipe, shipped_files
from stillhouse.workflow.step_command import read_section

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(("old", "new"), PAPERS)
def test_former_recipe_or_sweep(old: str, new: str) -> None:
    sweep = new in shipped_files(SWEEPS)
    with pytest.raises(InputError, match=f"no (recipe|sweep) '{old}'.*; it is now called '{new}'$"):
        find_sweep(old) if sweep else find_recipe(old)
    assert read_sweep(SWEEPS / f"{new}.yaml") if sweep else find_recipe(new)


def test_no_row_hides_a_name_that_is_in_use() -> None:
    sections = {use.name for use in (*USES, *APART)} | {step.identifier for step in steps().values()}
    for rows, used in (
        (PAPERS, {*shipped_files(SWEEPS), *shipped_files(SWEEPS.parent)}),
        (STEPS, set(steps())),
        (SECTIONS, sections),
    ):
        assert {new for _, new in rows} <= used
        assert not {old for old, _ in rows} & used


@pytest.mark.parametrize(("old", "new"), STEPS)
def test_former_step(old: str, new: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([old]) == 2
    assert f"no command '{old}'; it is now called '{new}'" in capsys.readouterr().err
    with pytest.raises(InputError, match=f"there is no step '{old}'; it is now called '{new}'"):
        find_step(old)
    recipe = written(tmp_path, f"stages:\n  own: {{step: {old}, corpus: ingest/corpus}}\n")
    with pytest.raises(InputError, match=f"stages.own: there is no step '{old}'; it is now called '{new}'"):
        load_recipe(recipe)


def test_former_section(tmp_path: Path) -> None:
    for text in ("lexical: {depth: 3}", "stages: {lexical: none}"):
        with pytest.raises(InputError, match=r"params.yaml: .*'?lexical.*; it is now called 'bm25'"):
            load_recipe(written(tmp_path, text))
    with pytest.raises(InputError, match="negatives cannot be 'lexical/negatives'; it is now called 'bm25/negatives'"):
        load_recipe(written(tmp_path, "stages: {retriever_1: {negatives: lexical/negatives}}"))


@pytest.mark.parametrize(("old", "new"), SECTIONS)
def test_former_section_of_a_file_for_one_step(old: str, new: str, tmp_path: Path) -> None:
    step = next(step for step in steps().values() if step.identifier == new)
    recipe = written(tmp_path, f"{old}: {{}}")
    with pytest.raises(InputError, match=f"section '{old}'; it is now called '{new}'"):
        read_section(step, recipe, old)


def written(folder: Path, text: str) -> Path:
    path = folder / "params.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("old", "new"), STEPS)
def test_a_manifest_of_an_earlier_version_has_the_present_name(old: str, new: str, tmp_path: Path) -> None:
    """`evaluate` uses it to distinguish BM25 from retrievers; the digest stays that of the file."""
    write_manifest(tmp_path, old, {"depth": 3}, {}, {})
    manifest = read_manifest(tmp_path)
    assert manifest.step == new and manifest.digest == digest_file(tmp_path / MANIFEST)


def owners(new: str) -> list[Step]:
    """The steps that have a setting of this name."""
    return [step for step in steps().values() if new in field_types(step.config)]


@pytest.mark.parametrize(("old", "new"), SETTINGS)
def test_former_setting(old: str, new: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert owners(new) and not owners(old)
    for step in owners(new):
        with pytest.raises(InputError, match=f"here: unknown setting '{old}'; it is now called '{new}'"):
            build(step.config, {old: 1}, "here")
        old_flag, new_flag = (f"--{name.replace('_', '-')}" for name in (old, new))
        assert main([step.name, old_flag, "1"]) == 2
        assert f"has no flag {old_flag}; it is now called '{new_flag}'" in capsys.readouterr().err


def test_former_setting_wherever_settings_are_given(tmp_path: Path) -> None:
    recipe = load_recipe(find_recipe("labelled"))
    renamed = "it is now called 'max_grad_norm'"
    with pytest.raises(InputError, match=f"params.yaml: retriever_1: unknown setting 'clip'; {renamed}"):
        configs(load_recipe(written(tmp_path, "retriever_1: {clip: 2}")), "params.yaml")
    with pytest.raises(InputError, match=f"settings: retriever_1: unknown setting 'clip'; {renamed}"):
        read_settings('{"retriever_1": {"clip": 2}}', recipe, "the recipe")
    with pytest.raises(InputError, match=r"settings: .* no section 'lexical'; it is now called 'bm25'"):
        read_settings('{"lexical": {"depth": 2}}', recipe, "the recipe")
    with pytest.raises(InputError, match=f"--set retriever_1.clip=2: .* no setting 'clip'; {renamed}"):
        with_settings(recipe, ["retriever_1.clip=2"], "the recipe")
    space = written(tmp_path, "settings: {retriever_1.clip: {min: 1, max: 2}}")
    with pytest.raises(InputError, match=f"retriever_1.clip: .* no setting 'clip'; {renamed}"):
        read_space(space, recipe)
    for old, new in (("retriever_1.clip", "retriever_1.max_grad_norm"), ("lexical.k1", "bm25.k1")):
        assert present_name(old, [new]) == new


def test_no_page_has_a_former_flag() -> None:
    """Former names are explained in CHANGELOG.md alone."""
    flags = "|".join(f"--{old.replace('_', '-')}" for old, _ in SETTINGS)
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = [
        f"{page.relative_to(ROOT)}:{number}: {line.strip()}"
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(rf"(?<![\w-])({flags})(?![\w-])", line)
    ]
    assert len(pages) > 15 and not found, "\n".join(found)


def test_an_unknown_name_is_not_a_former_name() -> None:
    assert present_name("clip", ["clips"]) == present_name("clipped", ["max_grad_norm"]) == ""
    assert nearest("warmup_rati", ["warmup_ratio"]) == "did you mean 'warmup_ratio'?"
