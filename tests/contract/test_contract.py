"""One contract for all interfaces: command line, dvc.yaml and Kubeflow have the steps and stages of the graph."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler, components

from stillhouse.core.config import field_types
from stillhouse.core.setting_kinds import kind_of
from stillhouse.kubeflow.pipelines.components import FOLDER_OF_ALL, rendered, stages_of_graphs
from stillhouse.kubeflow.pipelines.train import build_pipeline
from stillhouse.kubeflow.pods.run_parameters import FORM, SETTINGS
from stillhouse.pipeline.dvc_file import render
from stillhouse.pipeline.graph import SIMLM_STEPS, GraphStep
from stillhouse.pipeline.graph_steps import Stage, stages_of
from stillhouse.pipeline.recipes import configs, find_recipe, load_recipe
from stillhouse.pipeline.step_command import COMMON_FLAGS, command_of, given_inputs, step_parser
from stillhouse.pipeline.steps.places import location_fields
from stillhouse.pipeline.steps.registry import steps
from stillhouse.pipeline.steps.spec import Step, flag_of

ROOT = Path(__file__).resolve().parents[2]
WHOLE = "simlm"
"""A recipe with every step of the graph."""
STEPS = [pytest.param(step, id=step.name) for step in steps().values()]
USE_CASES = [pytest.param(step, id=step.name) for step in SIMLM_STEPS]
STAGES = [pytest.param(stage, id=stage.name) for stage in stages_of(SIMLM_STEPS)]


@cache
def recipe() -> dict[str, Any]:
    return load_recipe(find_recipe(WHOLE))


def _compiled(component: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ir.yaml"
        compiler.Compiler().compile(component, str(path))
        return next(yaml.safe_load_all(path.read_text(encoding="utf-8")))


@cache
def pipeline_ir() -> dict[str, Any]:
    """Return the compiled pipeline of the papers' whole run."""
    return _compiled(build_pipeline(recipe(), WHOLE))


def pipeline_tasks() -> dict[str, dict[str, Any]]:
    """Return the tasks inside the exit handler that reports how the run ended."""
    [component] = [part for name, part in pipeline_ir()["components"].items() if name.startswith("comp-exit-handler")]
    return component["dag"]["tasks"]


@cache
def dvc_stages() -> dict[str, Any]:
    """Return the DVC stages of the papers' whole run, as a workspace defines them."""
    return yaml.safe_load(render(recipe(), ROOT))["stages"]


@pytest.mark.parametrize("step", STEPS)
def test_names_of_a_step_fit_every_surface(step: Step) -> None:
    names = [port.name for port in (*step.inputs, *step.outputs)] + list(field_types(step.config))
    assert len(set(names)) == len(names), "Kubeflow and the flags have one space of names"
    assert not set(names) & {*COMMON_FLAGS}
    assert all(re.fullmatch("[a-z][a-z0-9_]*", name) for name in names)
    assert all(kind_of(hint) for hint in field_types(step.config).values())
    assert all(field.metadata["help"] for field in dataclasses.fields(step.config))


@pytest.mark.parametrize("step", STEPS)
def test_command_line_has_the_flags_of_the_step(step: Step) -> None:
    flags = {flag for flag in step_parser(step)._option_string_actions if flag.startswith("--")}
    expected = [port.flag for port in (*step.inputs, *step.outputs)]
    common = [name for name in COMMON_FLAGS if step.divided or name != "engine"]
    expected += [flag_of(name) for name in (*field_types(step.config), *common)]
    assert flags == set(expected)


def test_rendered_components_are_up_to_date() -> None:
    found = {path: path.read_text(encoding="utf-8") for path in FOLDER_OF_ALL.glob("*/*")}
    assert found == rendered(), "run `python -m stillhouse.kubeflow.pipelines.components`"


@pytest.mark.parametrize("name", stages_of_graphs())
def test_a_component_can_be_loaded_and_runs_its_stage(name: str) -> None:
    component = components.load_component_from_file(str(FOLDER_OF_ALL / name / "component.yaml"))
    inputs = component.component_spec.inputs
    always = set.intersection(*({other.name for other in reads} for _, reads in stages_of_graphs()[name]))
    assert {key for key, value in inputs.items() if not value.optional} == {
        "recipe",
        "plan",
        *always,
        *(f"{other}_digest" for other in always),
    }
    assert set(component.component_spec.outputs) == {"folder", "metrics", "page", "Output"}
    container = component.component_spec.implementation.container
    words = " ".join(container.command)
    assert container.image == "stillhouse:0.2.0" and "pip" not in words
    source = words[words.index(f"def {name}(") :]
    assert len(source) < 1024 and f'run_stage("{name}", locals())' in source


def test_dvc_file_is_up_to_date() -> None:
    expected = render(load_recipe(ROOT / "params.yaml"), ROOT)
    assert (ROOT / "dvc.yaml").read_text(encoding="utf-8") == expected, (
        "run `python -m stillhouse.pipeline.dvc_file params.yaml > dvc.yaml`"
    )


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_of_dvc_is_that_of_the_graph(stage: Stage) -> None:
    found = dvc_stages()[stage.name]
    assert found["cmd"] == f"stillhouse run {stage.name}"
    sources = {f"${{{step.name}.{field}}}" for step in stage.steps for field in location_fields(step.spec)}
    inputs = {f"artifacts/{source}" for source in stage.sources}
    assert set(found["deps"]) - sources == inputs | {f"artifacts/plan/{stage.name}.json"}
    assert found["outs"] == [{f"artifacts/{step.name}": {"persist": True}} for step in stage.steps]


@pytest.mark.parametrize("step", USE_CASES)
def test_the_command_of_a_step_parses_to_its_folders(step: GraphStep) -> None:
    program, step_name, *flags = " ".join(command_of(step)).split()
    assert (program, step_name) == ("stillhouse", step.kind)
    arguments = step_parser(step.spec).parse(flags)
    assert arguments.params == f"params.yaml:{step.name}"
    folders = given_inputs(step.spec, arguments)
    assert step.spec.order_of(folders) == step.spec.order_of(step.inputs), "runs are shown in the order given"
    folders |= {port.name: getattr(arguments, port.name) for port in step.spec.outputs}
    expected = {port: Path("artifacts", source) for port, source in step.inputs.items()}
    expected |= {port.name: Path("artifacts", step.name, port.name) for port in step.spec.outputs}
    assert {name: folder for name, folder in folders.items() if folder} == expected


def test_the_tasks_of_a_run_are_the_stages_of_dvc() -> None:
    stages = [stage.name for stage in stages_of(SIMLM_STEPS)]
    assert list(dvc_stages()) == ["plan", *stages]
    assert set(pipeline_tasks()) == {"check", *(name.replace("_", "-") for name in stages)}


@pytest.mark.parametrize("stage", STAGES)
def test_a_task_reads_the_recipe_and_the_folders_of_the_stages_before_it(stage: Stage) -> None:
    stages = {step.name: of.name for of in stages_of(SIMLM_STEPS) for step in of.steps}
    task = pipeline_tasks()[stage.name.replace("_", "-")]
    given = {
        name: (entry["taskOutputArtifact"]["producerTask"], entry["taskOutputArtifact"]["outputArtifactKey"])
        for name, entry in task["inputs"]["artifacts"].items()
    }
    read = {stages[source.split("/")[0]] for source in stage.sources}
    expected = {name: (name.replace("_", "-"), "folder") for name in read}
    assert given == expected | {"recipe": ("check", "recipe")}
    assert task["cachingOptions"] == {"enableCache": True}
    # Kubeflow's cache knows inputs by their names only, so the digests of all that is read are in an argument.
    digests = {
        name: (of["taskOutputParameter"]["producerTask"], of["taskOutputParameter"]["outputParameterKey"])
        for name, of in task["inputs"]["parameters"].items()
    }
    expected_digests = {f"{name}_digest": (name.replace("_", "-"), "Output") for name in read}
    assert digests == expected_digests | {"plan": ("check", f"plan_{stage.name}")}


def test_the_recipe_is_in_the_pipeline_once() -> None:
    text = yaml.safe_dump(pipeline_ir(), width=10**9)
    assert text.count("dev_depth") == json.dumps(recipe()).count("dev_depth") > 0


def test_pipeline_parameters_default_to_the_recipe() -> None:
    settings = configs(recipe(), WHOLE)
    declared = pipeline_ir()["root"]["inputDefinitions"]["parameters"]
    expected = {
        # A form field is empty if the setting is null.
        name: ("STRING", "" if (value := getattr(settings[step], name)) is None else value)
        for name, (step, _) in FORM.items()
    }
    found = {name: (entry["parameterType"], entry["defaultValue"]) for name, entry in declared.items()}
    assert found == expected | {SETTINGS: ("STRING", "")}
