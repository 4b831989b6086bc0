"""The comparison's pipeline: shared stages run once, and one task runs all variants with the plan of one machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from exit_handler import guarded_tasks
from quick_steps import quicken_steps

from stillhouse.experiments.comparison.plan import Plan, make_plan
from stillhouse.experiments.comparison.sweep import make_sweep
from stillhouse.kubeflow.pipelines.compare import compile_comparison, varied_steps
from stillhouse.kubeflow.pods.compare import do_job, shared_stages, shared_steps, write_comparison_plan
from stillhouse.kubeflow.pods.run_parameters import recipe_of_run
from stillhouse.kubeflow.pods.stage import step_in_pod, write_recipe
from stillhouse.pipeline.recipes import find_recipe, load_recipe

VARIANTS: list[dict[str, Any]] = [
    {"name": "none", "pretraining": False},
    {
        "name": "m15",
        "overrides": {"pretraining.encoder_mlm_probability": 0.15, "pretraining.decoder_mlm_probability": 1},
    },
    {"name": "bow", "overrides": {"pretraining.objective": "bow", "retriever_1.batch_size": 8}},
]


def plan(variants: list[dict[str, Any]] = VARIANTS, **content: Any) -> Plan:
    return make_plan(make_sweep("trial", {"variants": variants, "seeds": [1, 2]} | content, "trial"), {}, "recipe")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("pipeline") / "compare.yaml"
    compile_comparison(plan(), path)
    return next(yaml.safe_load_all(path.read_text()))


def test_shared_stages_run_once_before_the_variants(compiled: dict[str, Any]) -> None:
    tasks = guarded_tasks(compiled)
    shared = [stage.name for stage, _ in shared_stages(plan())]
    assert set(tasks) == {"check", "comparison", *shared}
    before = {step.name for step in shared_steps(plan())}
    assert before >= {"fetch_model", "ingest", "tokenize", "importance", "lm_head", "bm25", "zero_shot_run", "evaluate"}
    assert not {"pretraining", "retriever_1"} & before
    given = tasks["comparison"]["inputs"]["artifacts"]
    assert set(given) == {"recipe", *shared}


def same_plan(made: Plan, tmp_path: Path) -> None:
    """The plan that the pods read has the runs of a comparison on one machine, and shares what they share."""
    recipe = recipe_of_run(made.recipe, "recipe", {})
    write_recipe(recipe, tmp_path)
    found = write_comparison_plan(json.dumps({"name": made.sweep.name} | made.sweep.plain()), recipe, tmp_path)
    for one, other in zip((made.reference, *made.jobs), (found.reference, *found.jobs), strict=True):
        assert (one.name, one.steps, one.places) == (other.name, other.steps, other.places)
        for step in one.steps:
            assert one.configs[step.name] == other.configs[step.name], (one.name, step.name)
    shared = {step.name: step for step in shared_steps(found)}
    for job in found.jobs:
        for step in job.steps:
            if job.places[step.name] == Path("shared"):
                assert shared[step.name].inputs == step.inputs
    stages = shared_stages(found)
    assert sorted(step.name for stage, _ in stages for step in stage.steps) == sorted(shared), "each runs once"


@pytest.mark.parametrize("content", [{}, {"title": "T & U", "seeds": [3]}], ids=str)
def test_every_run_has_the_settings_of_its_variant_and_seed(content: dict[str, Any], tmp_path: Path) -> None:
    same_plan(plan(**content), tmp_path)


@pytest.mark.parametrize("system", ["averaged", "best"])
def test_any_system_of_a_recipe_is_measured(system: str, tmp_path: Path) -> None:
    recipe = load_recipe(find_recipe("labelled"))
    variants = [{"name": "short", "overrides": {"retriever_1.epochs": 1}}, {"name": "as-it-is"}]
    sweep = make_sweep("trial", {"variants": variants, "seeds": [1, 2, 3], "retriever": system}, "trial")
    made = make_plan(sweep, recipe, "labelled")
    compile_comparison(made, tmp_path / "compare.yaml")
    same_plan(made, tmp_path)
    own = {step.name for step in varied_steps(made)}
    assert f"{system}_run" in own and ("best" in own) == (system == "best")


LOSS = {"step": "pretrain", "tokens": "tokenize/tokens", "init": "pretraining/encoder"}
OTHER_GRAPHS: dict[str, dict[str, Any]] = {
    "systems": {"variants": [{"name": "words", "retriever": "bm25"}, {"name": "late", "retriever": "retriever_2"}]},
    "inputs": {
        "variants": [{"name": "start"}, {"name": "pretrained", "inputs": {"reranker.init": "pretraining/encoder"}}],
        "retriever": "reranked",
    },
    "losses": {
        "variants": [*VARIANTS, {"name": "words", "retriever": "bm25"}],
        "stages": {"loss": LOSS},
        "losses": {"MLM loss": "loss", "loss of the head": "lm_head"},
    },
    "own and shared": {
        "variants": [
            {"name": "long", "overrides": {"lm_head.max_steps": 9}},
            {"name": "late", "retriever": "retriever_2"},
        ]
    },
}
"""Sweeps whose variants do not all have the same graph. In the last, the head is one variant's own."""


@pytest.mark.parametrize("content", OTHER_GRAPHS.values(), ids=OTHER_GRAPHS)
def test_variants_may_have_graphs_of_their_own(content: dict[str, Any], tmp_path: Path) -> None:
    made = plan(**content)
    compile_comparison(made, tmp_path / "compare.yaml")
    same_plan(made, tmp_path)


def test_runs_share_the_steps_of_their_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node, or a task that is tried again, finds what an earlier run made for both."""
    ran: list[str] = []

    quicken_steps(monkeypatch, lambda name, config: ran.append(name))
    made = plan([{"name": name, "overrides": {"retriever_1.epochs": n}} for n, name in enumerate(("one", "two"), 1)])
    for stage, settings in shared_stages(made):
        for step in stage.steps:
            step_in_pod(step, settings[step.name], tmp_path / "shared" / "artifacts")
    ran.clear()
    assert [do_job(made, number, tmp_path) for number in range(4)] == [None] * 4
    assert (ran.count("pretrain"), ran.count("train-retriever")) == (2, 4)
