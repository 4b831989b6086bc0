"""The body of every component: arguments become settings and folders; the report becomes metrics, page and metadata."""

from __future__ import annotations

import dataclasses
import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillhouse.artifacts import digest_file, write_manifest
from stillhouse.components.catalog import find_component
from stillhouse.config import field_types
from stillhouse.errors import CrashElsewhere, InputError, ValidationFailed
from stillhouse.kubernetes.pods.component import run_component
from stillhouse.kubernetes.pods.task import refuse_failed_corpus
from stillhouse.kubernetes.preflight import REQUIREMENTS
from stillhouse.kubernetes.trainjob.settings import NODES, NodeSettings, nodes_text
from stillhouse.steps import registry
from stillhouse.steps.spec import Report


@dataclasses.dataclass
class Artifact:
    """The part of a Kubeflow artifact that a step uses."""

    path: str
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    def log_metric(self, name: str, value: float) -> None:
        self.metadata[name] = value


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Replace every step with one that records its settings and the names of its inputs."""
    seen: list[Any] = []

    def run(config: Any, inputs: Any, outputs: Any, context: Any) -> Report:
        seen.append((config, sorted(inputs)))
        for folder in outputs.values():
            (folder / "report.html").write_text("<p>passed</p>")
        return Report("done", {"passages": 3.0}, {"passed": True}, html="report.html")

    for name, step in list(registry.steps().items()):
        monkeypatch.setitem(registry.steps(), name, dataclasses.replace(step, run=run))
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "work"))
    return seen


def arguments(name: str, folder: Path) -> dict[str, Any]:
    """Return a component's arguments: no inputs, outputs below `folder`, and the default settings."""
    step = registry.steps()[name]
    values: dict[str, Any] = {port.component_input: None for port in step.inputs}
    for port in (*step.outputs, "metrics", "html", "summary", "roc"):
        port_name = port if isinstance(port, str) else port.name
        values[port_name] = Artifact(str(folder / name / port_name))
    return values | {field.name: field.default for field in dataclasses.fields(step.config)}


def test_report_reaches_kubeflow(tmp_path: Path, stand_ins: list[Any]) -> None:
    ingest, validate = arguments("ingest", tmp_path), arguments("validate", tmp_path)
    run_component("ingest", ingest | {"seed": 7, "something": "else"})
    run_component("validate", validate | {"corpus": ingest["corpus"]})
    assert stand_ins[0][0].seed == 7
    assert stand_ins[1][1] == ["corpus"]
    assert validate["metrics"].metadata == json.loads(Path(validate["metrics"].path).read_text()) == {"passages": 3.0}
    assert Path(validate["html"].path).read_text() == "<p>passed</p>"
    assert not Path(ingest["html"].path).exists(), "ingest has no page"
    carried = ingest["corpus"].metadata
    assert carried["digest"] == digest_file(tmp_path / "ingest/corpus/manifest.json")
    assert carried.keys() == {"digest", "dvc", "code", "revision", "parameters", "made_from"}
    assert json.loads(validate["validation"].metadata["made_from"]) == {"corpus": carried["digest"]}


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("ingest", {"seed": "7"}, "component ingest.seed must be a whole number"),
        ("validate", {}, "needs --corpus"),
    ],
)
def test_bad_input_is_reported_in_a_sentence_before_any_work(
    name: str,
    values: dict[str, Any],
    message: str,
    tmp_path: Path,
    stand_ins: list[Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        run_component(name, arguments(name, tmp_path) | values)
    assert end.value.code == InputError.exit_code and not stand_ins
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["ingest", "work"])
def test_a_volume_that_may_not_be_written_is_reported_in_a_sentence(
    closed: str,
    tmp_path: Path,
    read_only: Callable[..., None],
    stand_ins: list[Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    read_only(tmp_path / closed, errno.EROFS)
    with pytest.raises(SystemExit) as end:
        run_component("ingest", arguments("ingest", tmp_path))
    assert end.value.code == InputError.exit_code and not stand_ins
    [sentence] = capsys.readouterr().err.splitlines()
    assert f"cannot read or write {tmp_path / closed}/" in sentence and "Read-only file system" in sentence


def test_a_pod_that_fails_preflight_is_refused_before_any_work(
    tmp_path: Path, stand_ins: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(REQUIREMENTS, '{"free_gib": 1000000}')
    with pytest.raises(SystemExit) as end:
        run_component("ingest", arguments("ingest", tmp_path))
    assert end.value.code == 2 and not stand_ins and "enlarge the volume" in capsys.readouterr().err


@pytest.mark.parametrize("name", list(registry.steps()))
def test_component_hands_its_arguments_to_its_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call the component's function with a different object for every parameter."""
    called: list[Any] = []
    monkeypatch.setattr("stillhouse.kubernetes.pods.component.run_component", lambda *given: called.append(given))
    step = registry.steps()[name]
    function = find_component(step).python_func
    parameters = list(function.__annotations__)
    values = {parameter: object() for parameter in parameters}
    function(**values)
    [(called_name, passed)] = called
    assert called_name == name
    assert {parameter: passed[parameter] for parameter in parameters} == values
    assert set(field_types(step.config)) <= set(parameters)


def test_a_failed_validation_shows_its_page_and_the_gate_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kubeflow keeps no output of a failed task, so a gate after the validation fails instead."""

    def run(config: Any, inputs: Any, outputs: Any, context: Any) -> Report:
        (outputs["validation"] / "report.html").write_text("<p>3 empty passages</p>")
        return Report("3 empty passages", facts={"passed": False, "failed": ["empty"]}, html="report.html")

    ingest, validate = arguments("ingest", tmp_path), arguments("validate", tmp_path)
    run_component("ingest", ingest)
    monkeypatch.setitem(registry.steps(), "validate", dataclasses.replace(registry.steps()["validate"], run=run))
    run_component("validate", validate | {"corpus": ingest["corpus"]})
    assert Path(validate["html"].path).read_text() == "<p>3 empty passages</p>"
    capsys.readouterr()
    with pytest.raises(ValidationFailed, match=r"did not pass validation \(empty\)"):
        refuse_failed_corpus(Path(validate["validation"].path))


def test_the_gate_lets_a_good_corpus_through(tmp_path: Path) -> None:
    ingest, validate = arguments("ingest", tmp_path), arguments("validate", tmp_path)
    run_component("ingest", ingest)
    run_component("validate", validate | {"corpus": ingest["corpus"]})
    refuse_failed_corpus(Path(validate["validation"].path))


NODE_SETTINGS = NodeSettings(nodes=2, task="t", runtime="r", cpu="1", cpu_limit="1", memory="1Gi", memory_limit="1Gi")


def test_a_step_runs_on_several_nodes_if_the_pod_s_variable_says_so(
    tmp_path: Path, stand_ins: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def execute_on_nodes(step: Any, config: Any, inputs: Any, outputs: Any, settings: NodeSettings) -> Report:
        asked.append((step.name, config.seed, settings))
        for folder in outputs.values():
            folder.mkdir(parents=True)
            (folder / "curves.csv").write_text("step,train_loss,heldout_loss\n")
            write_manifest(folder, step.name, {}, {}, {})
        return Report("done on 2 nodes", {"loss": 0.5})

    monkeypatch.setattr("stillhouse.kubernetes.trainjob.launch.execute_on_nodes", execute_on_nodes)
    monkeypatch.setenv(NODES, nodes_text({"pretrain": NODE_SETTINGS}))
    values = arguments("pretrain", tmp_path) | {"tokens": Artifact(str(tmp_path / "tokens")), "seed": 7}
    run_component("pretrain", values)
    assert asked == [("pretrain", 7, NODE_SETTINGS)] and not stand_ins, "nothing is computed in the step's own pod"
    assert values["metrics"].metadata == {"loss": 0.5} and values["encoder"].metadata["digest"]


@pytest.mark.parametrize(
    ("error", "code"), [(InputError("give --objective simlm"), 2), (CrashElsewhere("node 1 ran out of memory"), 1)]
)
def test_a_failure_on_a_node_ends_the_task_with_the_same_exit_code(
    error: Exception, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute_on_nodes(*given: Any) -> Report:
        raise error

    monkeypatch.setattr("stillhouse.kubernetes.trainjob.launch.execute_on_nodes", execute_on_nodes)
    monkeypatch.setenv(NODES, nodes_text({"pretrain": NODE_SETTINGS}))
    with pytest.raises(SystemExit) as end:
        run_component("pretrain", arguments("pretrain", tmp_path))
    assert end.value.code == code
    assert f"stillhouse: {error}" in capsys.readouterr().err
