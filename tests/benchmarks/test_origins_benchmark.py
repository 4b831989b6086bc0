"""The benchmark of made queries: its settings are a recipe, and its page shows what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from stillhouse.workflow.graph import graph_of
from stillhouse.workflow.recipes import configs, find_recipe, load_recipe

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def test_every_row_is_the_recipe_with_its_change_alone(tmp_path: Path) -> None:
    import origins

    unlabelled = load_recipe(find_recipe("unlabelled"))
    before = configs(unlabelled, "recipe")
    for name, variant in origins.VARIANTS.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(unlabelled), encoding="utf-8")
        origins.write_settings(path, variant)
        recipe = load_recipe(path)
        settings = configs(recipe, "recipe")
        changed = {section for section in before if settings[section] != before[section]}
        assert changed == set(variant.settings) | {"fetch_model"}, name  # passages are cut at 128 tokens
        added = {use.name for use in graph_of(recipe)} - {use.name for use in graph_of(unlabelled)}
        assert added == set(variant.stages), name


def test_a_page_shows_means_and_differences() -> None:
    """By hand: the trained retriever answers one question more of two; with BM25 nothing changes."""
    import origins

    ranks = {"bm25": [0.0, 0.5], "start": [1.0, 0.0], "start + bm25": [1.0, 0.5]}
    ranks |= {"trained": [1.0, 1.0], "trained + bm25": [1.0, 0.5]}
    row = {"ranks": ranks, "train": 12, "passages": 300, "seconds": 120, "machine": "Machine: any."}
    lines = origins.page_lines({"scifact": {"span": row}})
    assert "300 passages and 2 test questions." in lines
    [shown] = [line for line in lines if line.startswith("| spans |")]
    cells = [cell.strip() for cell in shown.strip("|").split("|")]
    assert cells[1:7] == ["12", "0.250", "0.500", "0.750", "1.000", "0.750"]
    assert cells[7].startswith("+0.500 (") and cells[9].startswith("+0.000 (") and cells[-1] == "120"


@pytest.mark.parametrize("name", ["origins", "teachers_students"])
def test_the_page_is_of_the_kept_figures(name: str, tmp_path: Path) -> None:
    from importlib import import_module

    from notes import write_page

    found = json.loads((FOLDER / f"{name}.measured.json").read_text(encoding="utf-8"))
    notes = FOLDER / f"{name}.notes.md"
    if notes.is_file():
        (tmp_path / notes.name).write_bytes(notes.read_bytes())
    write_page(tmp_path / f"{name}.md", import_module(name).page_lines(found))
    assert (tmp_path / f"{name}.md").read_text() == (FOLDER / f"{name}.md").read_text()
