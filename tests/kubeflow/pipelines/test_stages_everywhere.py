"""A recipe that adds a stage, with `stillhouse run`, `dvc repro` and Kubeflow's local runner.

With DVC, only what changed runs again, and pushed outputs can be pulled. The recipes that `stillhouse new` chooses give
the same everywhere too, with a tiny model and in few steps.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from documented_stages import documented_re_ranker, documented_stages
from dvc_workspace import change, repro
from every_way import the_same_everywhere
from programs import EVALUATION, call

from stillhouse.experiments.comparison.graph import below
from stillhouse.pipeline.graph import GraphStep, graph_of
from stillhouse.pipeline.recipes import find_recipe, load_recipe

pytestmark = [pytest.mark.slow, pytest.mark.long]

ADDED = {
    "round_2": {
        "step": "train-retriever",
        "settings_of": "distilled",
        "corpus": "ingest/corpus",
        "encoder": "distilled/retriever",
        "negatives": "mine_2/negatives",
        "system": "round_2/retriever",
    }
}
SYSTEMS = ["bm25", "zero_shot", "distilled", "averaged", "zero_shot_hybrid", "round_2", "best"]
TRAINING = {"max_steps": 2, "batch_size": 8}
AFTER_MINING: dict[str, dict[str, Any]] = {
    "ingest": {"max_articles": 11},
    "distilled": TRAINING | {"negatives_depth": 8},
    "bm25": {"negatives_depth": 8},
    "mine_2": {"negatives_depth": 8, "others_depth": 2, "random_negatives": 2},
    "averaged": {"alphas": [0.5, 1.0], "eval_depth": 8},
}
LABELLED = AFTER_MINING | {
    "retriever_1": TRAINING,
    "retriever_2": TRAINING,
    "mine_1": {"negatives_depth": 8},
    "teacher": {"depth": 8},
}
TINY: dict[str, dict[str, dict[str, Any]]] = {
    "labelled": LABELLED | {"reranker": {"max_steps": 2, "batch_size": 4}, "reranked_run": {"depth": 4}},
    "unlabelled": AFTER_MINING,
    "language-model": LABELLED | {"lm_head": {"max_steps": 6, "learning_rate": 3e-3}, "pretraining": TRAINING},
}
"""Settings by which a shipped recipe takes seconds; its model and some others are those of `micro`."""


def test_a_recipe_with_stages_gives_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "work"))
    recipe, micro = load_recipe(find_recipe("unlabelled")), load_recipe(find_recipe("micro"))
    recipe |= {section: micro[section] for section in ("fetch_model", "validate", "evaluate")}
    recipe |= {section: recipe.get(section, {}) | own for section, own in TINY["unlabelled"].items()}
    recipe["stages"] = ADDED
    assert the_same_everywhere(recipe, tmp_path) == SYSTEMS
    of_dvc(tmp_path / "workspace", graph_of(recipe))


@pytest.mark.parametrize("name", TINY)
def test_a_shipped_recipe_gives_the_same_everywhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An average of weights, a fusion with BM25, a fused teacher, `weak_teacher`, made queries: `micro` has none.

    Nor does it pre-train with enhanced decoding. `labelled` also has what docs/fine-tuning.md adds to it: a re-ranker
    that starts from the retriever and joins the teacher, and a third round of negatives.
    """
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "work"))
    recipe, micro = load_recipe(find_recipe(name)), load_recipe(find_recipe("micro"))
    if name == "labelled":
        re_ranker, (third_round, _) = documented_re_ranker(), documented_stages()
        recipe |= re_ranker | {"stages": re_ranker["stages"] | third_round["stages"]}
    recipe |= {section: micro[section] for section in ("fetch_model", "validate", "evaluate")}
    recipe |= {section: recipe.get(section, {}) | own for section, own in TINY[name].items()}
    systems = the_same_everywhere(recipe, tmp_path)
    assert {"averaged", "distilled", "best"} <= set(systems)
    assert ({"reranked", "retriever_3"} <= set(systems)) == (name == "labelled")
    assert ("zero_shot_hybrid" in systems) == (name != "language-model")  # its start cannot search
    teachers = tmp_path / "workspace" / EVALUATION / "teachers.json"
    assert teachers.is_file() == (name != "unlabelled")
    assert (teachers.is_file() and "cross_encoder" in teachers.read_text()) == (name == "labelled")


def test_the_papers_run_gives_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "work"))
    the_same_everywhere(load_recipe(find_recipe("micro")), tmp_path)


def of_dvc(folder: Path, steps: tuple[GraphStep, ...]) -> None:
    """DVC shows metrics, plots and the graph. A change runs what depends on it. A push and a pull change nothing."""
    assert repro(folder, steps) == []
    metrics = json.loads((folder / EVALUATION / "metrics.json").read_text())
    shown = json.loads(call(folder, "dvc", "metrics", "show", "--json"))[""]["data"]
    assert shown[f"{EVALUATION}/metrics.json"]["data"] == metrics
    plots = json.loads(call(folder, "dvc", "plots", "show", "--json"))["data"]
    assert set(plots) == {step.name for step in steps if "curves" in step.output_paths()}
    assert {point["field"] for plot in plots.values() for point in plot[0]["content"]["data"]["values"]} == {
        "train_loss",
        "heldout_loss",
    }
    call(folder, "dvc", "plots", "show")
    graph = call(folder, "dvc", "dag", "--mermaid")
    assert all(f'"{step.stage}"' in graph for step in steps)

    change(folder, "best", {"depth": 7})
    ran = set(repro(folder, steps))
    assert ran == below([step.name for step in steps if step.section == "best"], steps) and len(ran) < len(steps) / 2
    final = (folder / EVALUATION / "metrics.json").read_bytes()

    call(folder, "dvc", "remote", "add", "-d", "storage", str(folder.parent / "storage"))
    call(folder, "dvc", "push")
    call(folder, sys.executable, "-c", "import shutil; shutil.rmtree('artifacts'); shutil.rmtree('.dvc/cache')")
    call(folder, "dvc", "pull")
    assert (folder / EVALUATION / "metrics.json").read_bytes() == final
    assert repro(folder, steps) == []
