"""The comparison's pipeline: shared work is done once, each run of a variant is an item, and one task runs them all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from stillhouse import cli
from stillhouse.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.errors import InputError
from stillhouse.experiments.comparison.plan import Plan, make_plan
from stillhouse.experiments.comparison.sweep import make_sweep
from stillhouse.experiments.comparison.sweeps import find_sweep
from stillhouse.kubernetes.pods.compare import gather
from stillhouse.kubernetes.pods.task import works_of
from stillhouse.pipelines.catalog import Request
from stillhouse.pipelines.compare import ITEM_LIMIT, build_comparison, compile_comparison, loop_items
from stillhouse.pipelines.ir import compile_small
from stillhouse.pipelines.placement_table import find_table
from stillhouse.workflow.recipes import SHIPPED, find_recipe, load_recipe, shipped_files

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


def tasks_of(compiled: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The tasks inside the exit handler, by label."""
    [handler] = [part for name, part in compiled["components"].items() if name.startswith("comp-exit-handler")]
    return {task["taskInfo"]["name"]: task for task in handler["dag"]["tasks"].values()}


def logged(task: dict[str, Any], argument: str) -> Any:
    """Return the value of a task's JSON argument, or None if the task does not have it."""
    given = task["inputs"]["parameters"].get(argument)
    return json.loads(given["runtimeValue"]["constant"]) if given else None


def test_shared_uses_run_once_before_the_variants(compiled: dict[str, Any]) -> None:
    tasks = tasks_of(compiled)
    before = [use for task in tasks.values() for use in logged(task, "steps") or ()]
    shared = {"fetch_model", "fetch_generator", "ingest", "validate", "tokenize", "importance", "lm_head", "bm25"}
    assert shared | {"zero_shot_index", "zero_shot_run", "evaluate"} <= set(before)
    assert len(before) == len(set(before)) and not {"pretraining", "retriever_1"} & set(before)
    uses = {group: set(of) for group, of in logged(tasks["comparison"], "uses").items()}
    after = {"evaluate", "retriever_1", "retriever_1_index", "retriever_1_run"}
    assert uses == {"none": after, "m15": after | {"pretraining"}}
    verdict = tasks["comparison"]["inputs"]["artifacts"]["validate__validation"]
    assert verdict["taskOutputArtifact"]["producerTask"] == "prepare"


def test_every_run_has_the_settings_of_its_variant_and_seed(compiled: dict[str, Any]) -> None:
    has_every_run(compiled, plan())


@pytest.mark.parametrize("system", ["averaged", "best"])
def test_any_system_of_a_recipe_is_measured(system: str, tmp_path: Path) -> None:
    recipe = load_recipe(find_recipe("labelled"))
    variants = [{"name": "short", "overrides": {"retriever_1.epochs": 1}}, {"name": "as-it-is"}]
    sweep = make_sweep("trial", {"variants": variants, "seeds": [1, 2, 3], "retriever": system}, "trial")
    made = make_plan(sweep, recipe, "labelled")
    compile_comparison(made, tmp_path / "compare.yaml")
    compiled = next(yaml.safe_load_all((tmp_path / "compare.yaml").read_text()))
    has_every_run(compiled, made)
    [uses] = logged(tasks_of(compiled)["comparison"], "uses").values()
    assert f"{system}_run" in uses and ("best" in uses) == (system == "best")


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
        ],
    },
}
"""Sweeps whose variants do not all have the same graph. In the last, the head is one variant's own."""


@pytest.mark.parametrize("content", OTHER_GRAPHS.values(), ids=OTHER_GRAPHS)
def test_variants_may_have_graphs_of_their_own(content: dict[str, Any], tmp_path: Path) -> None:
    made = plan(**content)
    compile_comparison(made, tmp_path / "compare.yaml")
    compiled = next(yaml.safe_load_all((tmp_path / "compare.yaml").read_text()))
    has_every_run(compiled, made)
    task = tasks_of(compiled)["comparison"]
    graphs = {frozenset((use.name, *use.inputs.items()) for use in job.uses) for job in made.jobs}
    assert len(logged(task, "uses")) == len(graphs) > 1, "as many groups as graphs"
    before = [use for other in tasks_of(compiled).values() for use in logged(other, "steps") or ()]
    assert len(before) == len(set(before)), "what several graphs share runs once"


def has_every_run(compiled: dict[str, Any], made: Plan) -> None:
    """The settings that the pod combines equal those of a comparison on one machine, and it has what they read."""
    task = tasks_of(compiled)["comparison"]
    uses, items = logged(task, "uses"), logged(task, "items")
    jobs = {job.name: job for job in made.jobs}
    assert len(items) == len(jobs) and {item["run"] for item in items} == jobs.keys()
    for item in items:
        job = jobs[item["run"]]
        for work in works_of(uses[item["group"]], item):
            assert work.config == job.configs[work.use.name], (item["run"], work.use.name)
            [use] = [use for use in job.uses if use.name == work.use.name]
            assert work.use == use
        own = {name for name, place in job.places.items() if place != Path("shared")}
        assert own <= uses[item["group"]].keys()
        losses = {name: f"{use}/curves" for name, use in made.sweep.losses.items() if use in job.places}
        assert item.get("losses", {}) == losses
        read = {source for use in job.uses for source in use.inputs.values() if use.name in uses[item["group"]]}
        for source in read | set(losses.values()):
            if source.split("/")[0] not in uses[item["group"]]:
                assert source.replace("/", "__") in task["inputs"]["artifacts"], (item["run"], source)


def test_loop_items_hold_the_settings_that_differ(compiled: dict[str, Any]) -> None:
    items = [item for item in logged(tasks_of(compiled)["comparison"], "items") if item["group"] == "m15"]
    assert [(item["pretraining__encoder_mlm_probability"], item["pretraining__seed"]) for item in items] == [
        (0.15, 1),
        (0.3, 1),
        (0.15, 2),
        (0.3, 2),
    ]
    assert not [name for item in items for name in item if name == "pretraining__batch_size"]


def test_loop_items_have_the_types_of_their_settings() -> None:
    pretrained = [job for job in plan().jobs if job.variant != "none"]
    first = loop_items(pretrained)[0]
    assert (
        first["pretraining__decoder_mlm_probability"] == 1.0
        and type(first["pretraining__decoder_mlm_probability"]) is float
    )
    assert type(first["retriever_1__batch_size"]) is int and first["run"] == "m15, seed 1"


def test_plans_of_one_variant_compile(tmp_path: Path) -> None:
    for variants in (VARIANTS[:1], VARIANTS[1:2]):
        compile_comparison(plan(variants), tmp_path / "one.yaml")
        compiled = next(yaml.safe_load_all((tmp_path / "one.yaml").read_text()))
        assert len(logged(tasks_of(compiled)["comparison"], "uses")) == 1


WITHOUT = {"labelled": "leaves out pretraining", "unlabelled": "retriever 'retriever_1'"}
"""The recipes that cannot compare pre-trainings, with what they lack."""


@pytest.mark.parametrize("recipe", shipped_files(SHIPPED))
def test_every_recipe_that_pre_trains_compiles_with_the_default_sweep(recipe: str) -> None:
    request = Request("compare-objectives", recipe)
    if recipe in WITHOUT:
        with pytest.raises(InputError, match=WITHOUT[recipe]):
            request.build(find_table("cpu"))
        return
    compiled = compile_small(request.build(find_table("cpu")))
    made = make_plan(find_sweep(request.sweep), load_recipe(find_recipe(recipe)), recipe)
    has_every_run(compiled.spec, made)


def test_more_runs_than_a_pipeline_holds_are_refused() -> None:
    with pytest.raises(InputError, match="use fewer seeds"):
        build_comparison(plan(VARIANTS[1:2], seeds=list(range(ITEM_LIMIT + 1))))


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "build/compare.yaml"
    words = ["compare", "--recipe", "micro", "--sweep", "simlm-table8", "--kubeflow", str(path)]
    assert cli.main(words) == 0 and str(path) in capsys.readouterr().out
    assert next(yaml.safe_load_all(path.read_text()))["pipelineInfo"]["name"] == "compare-objectives"


def evaluation(folder: Path, system: str, value: float, title: str, curves: Path | None = None) -> Path:
    with whole_folder(folder) as staging:
        rows = [
            {"split": split, "system": system, "query_id": f"{split}{i}", "origin": "source", "RR@10": value}
            for split in ("dev", "test")
            for i in range(5)
        ]
        pd.DataFrame(rows).to_parquet(staging / "per_query.parquet")
        inputs = {"curves/pretraining": read_manifest(curves).digest} if curves else {}
        config = {"title": title, "bootstrap_samples": 100, "randomisation_samples": 100, "seed": 1}
        write_manifest(staging, "evaluate", config, inputs, {"labels": "source"})
    return folder


def test_the_last_task_matches_evaluations_to_their_variants(tmp_path: Path) -> None:
    """Evaluations and curves arrive in no particular order, and m15 with seed 2 is missing."""
    made = plan(title="T & U")
    evaluations, curves = [], []
    for number, job in enumerate(made.jobs):
        if (job.variant, job.seed) == ("m15", 2):
            continue
        own = None
        if job.variant != "none":
            own = tmp_path / f"curves-{number}"
            with whole_folder(own) as staging:
                (staging / "curves.csv").write_text(f"step,train_loss,heldout_loss\n0,9,9\n5,1,{number}.5\n")
                write_manifest(staging, "pretrain", {"number": number}, {}, {})
            curves.append(own)
        title = job.configs["evaluate"].title
        evaluations.append(evaluation(tmp_path / f"evaluation-{number}", "retriever_1", 0.1 * number, title, own))
    reference = evaluation(tmp_path / "reference", "bm25", 0.25, "reference")
    sweep = json.dumps({"name": made.sweep.name} | made.sweep.plain())
    out = tmp_path / "out"
    means = gather(sweep, evaluations[::-1], curves[1:] + curves[:1], reference, out, tmp_path / "html/page")
    expected = {
        name: [0.1 * i for i, job in enumerate(made.jobs) if job.variant == name and (name, job.seed) != ("m15", 2)]
        for name in ("none", "m15", "bow")
    }
    assert means == pytest.approx({f"{name}/RR@10": sum(v) / len(v) for name, v in expected.items()})
    content = json.loads((out / "comparison.json").read_text())
    places = [number for number, job in enumerate(made.jobs) if job.variant == "bow"]
    assert content["variants"]["bow"]["heldout_loss"] == sum(number + 0.5 for number in places) / 2
    assert content["variants"]["m15"]["failures"] == {"2": "its evaluation is missing"}
    assert (tmp_path / "html/page").read_text() == (out / "comparison.html").read_text()
