"""One contract for all interfaces: command line, dvc.yaml and Kubeflow use the names of the steps and the graph."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from kfp import compiler

from stillhouse.components.catalog import find_component
from stillhouse.components.render import rendered
from stillhouse.config import field_types
from stillhouse.kubernetes.pods.component_views import views_of
from stillhouse.kubernetes.pods.run_parameters import SETTINGS, TRAIN, filled, value_of
from stillhouse.kubernetes.pods.task import works_of
from stillhouse.pipelines.train import build_pipeline
from stillhouse.setting_kinds import kind_of, plain
from stillhouse.steps.registry import steps
from stillhouse.steps.spec import Step
from stillhouse.workflow.dvc_file import ENVIRONMENT, render
from stillhouse.workflow.graph import USES, Use, find_uses
from stillhouse.workflow.recipes import configs, find_recipe, load_recipe, location_fields
from stillhouse.workflow.step_command import COMMON_FLAGS, flag_of, given_inputs, step_parser

ROOT = Path(__file__).resolve().parents[2]
WHOLE = "simlm"
"""A recipe with every use of the graph."""
STEPS = [pytest.param(step, id=step.name) for step in steps().values()]
USE_CASES = [pytest.param(use, id=use.name) for use in USES]
IR_TYPES = {bool: "BOOLEAN", int: "NUMBER_INTEGER", float: "NUMBER_DOUBLE", str: "STRING"}


@cache
def recipe() -> dict[str, Any]:
    return load_recipe(find_recipe(WHOLE))


@cache
def component_ir(step: Step) -> dict[str, Any]:
    """Return the compiled interface of a step's component, with its container."""
    return _compiled(find_component(step))


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
    assert not set(names) & {*COMMON_FLAGS, "html", "summary", "roc", "question"}
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


@pytest.mark.parametrize("step", STEPS)
def test_component_has_the_interface_of_the_step(step: Step) -> None:
    interface = component_ir(step)["root"]
    inputs = interface.get("inputDefinitions", {})
    artifacts = {
        name: (entry["artifactType"]["schemaTitle"], entry.get("isOptional", False))
        for name, entry in inputs.get("artifacts", {}).items()
    }
    assert artifacts == {port.component_input: (f"system.{port.holds}", port.optional) for port in step.inputs}
    parameters = {
        name: (entry["parameterType"], entry.get("defaultValue"), entry.get("isOptional"))
        for name, entry in inputs.get("parameters", {}).items()
    }
    kinds = field_types(step.config)
    assert parameters == {
        field.name: (*of_component(kinds[field.name], field.default), True) for field in dataclasses.fields(step.config)
    }


def of_component(hint: Any, default: Any) -> tuple[str, Any]:
    """Return the Kubeflow type and default of a setting. A nullable number with a default is passed as JSON."""
    base, *_ = (part for part in get_args(hint) or (hint,) if part is not type(None))
    if "tuple" in str(hint) or "Mapping" in str(hint):
        return "LIST" if "tuple" in str(hint) else "STRUCT", plain(default)
    if base is not hint and base is not str and default is not None:
        return "STRING", json.dumps(default)
    return IR_TYPES[base], default


@pytest.mark.parametrize("step", STEPS)
def test_component_has_the_outputs_of_the_step(step: Step) -> None:
    [component] = component_ir(step)["components"].values()
    outputs = {
        name: entry["artifactType"]["schemaTitle"]
        for name, entry in component["outputDefinitions"]["artifacts"].items()
    }
    expected = {port.name: f"system.{port.holds}" for port in step.outputs} | {"metrics": "system.Metrics"}
    assert outputs == expected | {view.name: f"system.{view.kind}" for view in views_of(step.name)}


@pytest.mark.parametrize("step", STEPS)
def test_component_runs_the_project_image_and_installs_nothing(step: Step) -> None:
    [executor] = component_ir(step)["deploymentSpec"]["executors"].values()
    assert executor["container"]["image"] == "stillhouse:0.1.0"
    assert "pip" not in " ".join(executor["container"]["command"])
    assert len(" ".join(executor["container"]["command"])) < 128 * 1024, "the longest word that Linux takes"


def test_rendered_components_are_up_to_date() -> None:
    stale = [
        str(path.relative_to(ROOT)) for path, text in rendered().items() if path.read_text(encoding="utf-8") != text
    ]
    assert not stale, "run `python -m stillhouse.components.render`"
    folders = {path.parent for path in (ROOT / "stillhouse" / "components").glob("*/component.py")}
    assert folders == {path.parent for path in rendered()}, "a component without a step"


def test_dvc_file_is_up_to_date() -> None:
    expected = render(load_recipe(ROOT / "params.yaml"), ROOT)
    assert (ROOT / "dvc.yaml").read_text(encoding="utf-8") == expected, (
        "run `python -m stillhouse.workflow.dvc_file params.yaml > dvc.yaml`"
    )


@pytest.mark.parametrize("use", USE_CASES)
def test_stage_is_the_use_of_the_graph(use: Use) -> None:
    stage = dvc_stages()[use.name]
    sources = {f"${{{use.name}.{field}}}" for field in location_fields(use.step)}
    inputs = {f"artifacts/{source}" for source in use.inputs.values()}
    assert set(stage["deps"]) - sources == inputs | {ENVIRONMENT}
    outputs = [*(port.name for port in use.step.outputs), "report.json"]
    assert stage["outs"] == [f"artifacts/{use.name}/{name}" for name in outputs]
    assert stage["params"] == [use.name]


@pytest.mark.parametrize("use", USE_CASES)
def test_command_of_a_stage_parses_to_the_folders_of_the_use(use: Use) -> None:
    program, step_name, *flags = dvc_stages()[use.name]["cmd"].split()
    assert (program, step_name) == ("stillhouse", use.step_name)
    arguments = step_parser(use.step).parse(flags)
    assert arguments.params == f"params.yaml:{use.name}"
    assert arguments.report == Path("artifacts", use.name, "report.json")
    folders = given_inputs(use.step, arguments)
    assert use.step.order_of(folders) == use.step.order_of(use.inputs), "runs are shown in the order given"
    folders |= {port.name: getattr(arguments, port.name) for port in use.step.outputs}
    expected = {port: Path("artifacts", source) for port, source in use.inputs.items()}
    expected |= {port.name: Path("artifacts", use.name, port.name) for port in use.step.outputs}
    assert {name: folder for name, folder in folders.items() if folder} == expected


def test_stages_and_tasks_are_the_uses() -> None:
    assert list(dvc_stages()) == ["environment", *(use.name for use in USES)]
    logged = [name for task in pipeline_tasks().values() for name in steps_of(task)]
    assert sorted(logged) == sorted(find_uses())


def steps_of(task: dict[str, Any]) -> dict[str, Any]:
    """Return the description of each use of a task by name, or an empty dict if the task runs no steps."""
    logged = task.get("inputs", {}).get("parameters", {}).get("steps", {})
    return dict(json.loads(logged["runtimeValue"]["constant"])) if logged else {}


def task_of(use: Use) -> dict[str, Any]:
    return next(task for task in pipeline_tasks().values() if use.name in steps_of(task))


def test_tasks_wait_for_the_check_or_for_what_they_read() -> None:
    """Tasks without inputs wait for the check, so no work starts with parameters out of range."""
    for name, task in pipeline_tasks().items():
        if steps_of(task):
            reads = bool(task["inputs"].get("artifacts"))
            assert ("check-train" in task.get("dependentTasks", [])) == (not reads), name


@pytest.mark.parametrize("use", USE_CASES)
def test_a_task_runs_the_use_with_the_settings_of_the_recipe(use: Use) -> None:
    settings = configs(recipe(), WHOLE)
    chosen = {pair: name for name, pairs in filled(TRAIN, settings).items() for pair in pairs}
    logged = steps_of(task_of(use))[use.name]
    assert logged.get("chosen", {}) == {
        field: chosen[use.name, field] for field in field_types(use.step.config) if (use.name, field) in chosen
    }
    parameters = {name: value_of(settings, TRAIN[name].fills[0]) for name in logged.get("chosen", {}).values()}
    [work] = works_of({use.name: logged}, parameters)
    assert work.use == use and work.config == settings[use.name]
    given = task_of(use)["inputs"]["parameters"]
    assert all(given[name] == {"componentInputParameter": f"pipelinechannel--{name}"} for name in parameters)


@pytest.mark.parametrize("use", USE_CASES)
def test_a_task_is_given_what_the_stage_reads(use: Use) -> None:
    """Each input comes from the task that writes it, except those that the task itself writes."""
    task = task_of(use)
    given = task["inputs"].get("artifacts", {})
    for source in use.inputs.values():
        name, _, output = source.partition("/")
        if name not in steps_of(task):
            origin = given[f"{name}__{output}"]["taskOutputArtifact"]
            assert origin["outputArtifactKey"] == f"{name}__{output}"
            assert name in steps_of(pipeline_tasks()[origin["producerTask"]])


def test_pipeline_parameters_default_to_the_recipe() -> None:
    settings = configs(recipe(), WHOLE)
    declared = pipeline_ir()["root"]["inputDefinitions"]["parameters"]
    expected = {
        # A form field is empty if the setting is null.
        name: (IR_TYPES[one.kind], "" if (value := value_of(settings, one.fills[0])) is None else value)
        for name, one in TRAIN.items()
    }
    found = {name: (entry["parameterType"], entry["defaultValue"]) for name, entry in declared.items()}
    assert found == expected | {SETTINGS: ("STRING", "")}
