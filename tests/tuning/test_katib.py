"""The Experiment for Katib, the pods of its trials, and the file that its collector reads."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubeflow_katib_api.models import V1beta1Experiment
from stand_in_steps import RECIPE, Steps

from stillhouse import cli
from stillhouse.cli.tune import given_settings, tune_parser
from stillhouse.errors import InputError
from stillhouse.tuning.katib import METRICS, OBJECTIVE, MetricsFile, Pods, experiment, threads
from stillhouse.tuning.space import Space, find_space, read_space
from stillhouse.tuning.trial_graph import TrialGraph, trial_graph

PODS = Pods("registry/steps:1", "stillhouse-work", "mine", "tune", "labelled", "params.yaml", "2", "8Gi", gpus=1)
LINE = re.compile(r"([\w|-]+)\s*=\s*([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)")
"""The default filter of Katib's metrics collector for text files."""


@pytest.fixture
def graph() -> TrialGraph:
    return trial_graph(RECIPE, "labelled", read_space(find_space("labelled"), RECIPE), "averaged")


@pytest.fixture
def made(graph: TrialGraph) -> dict[str, Any]:
    return experiment(graph.space, PODS, trials=12, parallel=3, seed=7)


def substituted(made: dict[str, Any], values: dict[str, str]) -> dict[str, Any]:
    """Return the trial's object with values in place of its parameters, as Katib's controller does."""
    template = made["spec"]["trialTemplate"]
    text = yaml.safe_dump(template["trialSpec"])
    for parameter in template["trialParameters"]:
        text = text.replace(f"${{trialParameters.{parameter['name']}}}", values[parameter["reference"]])
    assert "${" not in text, "Katib refuses a placeholder that no parameter fills"
    job: dict[str, Any] = yaml.safe_load(text)
    return job


def some_values(made: dict[str, Any]) -> dict[str, str]:
    spaces = {parameter["name"]: parameter["feasibleSpace"] for parameter in made["spec"]["parameters"]}
    return {name: space["list"][-1] if "list" in space else space["max"] for name, space in spaces.items()}


def test_katibs_own_models_know_every_field(made: dict[str, Any]) -> None:
    """Katib's custom resource accepts any field, so a field that its API lacks would silently have no effect."""
    read = V1beta1Experiment.from_dict(made)
    assert read is not None and read.to_dict() == made
    wrong = made | {"spec": made["spec"] | {"maxTrials": 3}}
    again = V1beta1Experiment.from_dict(wrong)
    assert again is not None and again.to_dict() != wrong, "the models would show an unknown field"


def test_katibs_webhook_would_accept_the_experiment(made: dict[str, Any]) -> None:
    """The webhook checks the objective, counts, feasible spaces, use of all parameters, and format of the source."""
    spec, template = made["spec"], made["spec"]["trialTemplate"]
    assert spec["objective"]["type"] == "maximize" and spec["objective"]["objectiveMetricName"] == OBJECTIVE
    assert 0 < spec["parallelTrialCount"] <= spec["maxTrialCount"] >= spec["maxFailedTrialCount"]
    names = [parameter["name"] for parameter in spec["parameters"]]
    assert len(set(names)) == len(names) == len(template["trialParameters"])
    assert {one["reference"] for one in template["trialParameters"]} == set(names)
    for parameter in spec["parameters"]:
        space = parameter["feasibleSpace"]
        assert all(isinstance(value, str) for value in (space.get("list") or space.values()))
        kinds = {
            "double": {"min", "max", "distribution"},
            "int": {"min", "max", "distribution"},
            "categorical": {"list"},
        }
        assert set(space) == kinds[parameter["parameterType"]]
    text = yaml.safe_dump(template["trialSpec"])
    assert all(text.count(f"${{trialParameters.{one['name']}}}") == 1 for one in template["trialParameters"])
    assert not re.search(r"[{}]", "".join(names))
    assert "metadata" not in template["trialSpec"], "Katib names the object"
    path = spec["metricsCollectorSpec"]["source"]["fileSystemPath"]
    assert path["path"].startswith("/") and path["kind"] == "File" and path["format"] == "TEXT"
    containers = template["trialSpec"]["spec"]["template"]["spec"]["containers"]
    assert [container["name"] for container in containers] == [template["primaryContainerName"]]
    assert containers[0]["command"], "without one Katib asks the image's registry"


def test_the_trial_job_is_valid_for_kubernetes(made: dict[str, Any]) -> None:
    job = substituted(made, some_values(made)) | {"metadata": {"name": "trial"}}
    for version in ("1.30", "1.36"):
        kubernetes_validate.validate(job, version, strict=True)
    spec = job["spec"]["template"]["spec"]
    [container] = spec["containers"]
    own = container["securityContext"]
    assert own["allowPrivilegeEscalation"] is False and own["capabilities"] == {"drop": ["ALL"]}
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["seccompProfile"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_a_trials_command_survives_katibs_shell(made: dict[str, Any], graph: TrialGraph) -> None:
    """Katib joins command and arguments with spaces and hands them to `sh -c`."""
    values = some_values(made)
    [container] = substituted(made, values)["spec"]["template"]["spec"]["containers"]
    words = [*container["command"], *container["args"]]
    assert shlex.split(" ".join(words)) == words
    parsed = tune_parser().parse(words[2:])
    settings = given_settings(graph, parsed.trial)
    assert settings == {
        one.key: one.read(values[f"{one.section}-{one.field}".replace("_", "-")]) for one in graph.space.parameters
    }
    graph.configs(settings)
    assert parsed.metrics == Path(METRICS) and parsed.space == "labelled" and parsed.retriever == "averaged"


def test_a_value_that_a_shell_would_change_is_refused(space_of: Callable[[str], Space]) -> None:
    space = space_of('settings: {evaluate.title: {choices: ["a b", "c"]}}')
    with pytest.raises(InputError, match="is not valid in a trial's command"):
        experiment(space, PODS, trials=1, parallel=1, seed=1)


def test_threads_are_those_of_the_pod() -> None:
    assert [threads(cpu) for cpu in ("4", "1500m", "250m")] == ["4", "1", "1"]
    with pytest.raises(InputError, match="write a number of CPUs, for example 2 or 1500m"):
        threads("two")


def test_katibs_filter_reads_the_metrics_file(tmp_path: Path) -> None:
    path = tmp_path / "log" / "metrics.log"
    with MetricsFile(path) as metrics:
        metrics.write("dev_gain", -0.00125)
        assert path.read_text().endswith("dev_gain=-0.001250\n"), "the collector reads it while the trial runs"
        metrics.write("dev_rr10", 0.8931)
    found = []
    for line in path.read_text().splitlines():
        moment, rest = line.split(" ", 1)
        assert datetime.fromisoformat(moment).tzinfo is not None and moment.endswith("Z")
        found += [(match[1], float(match[2])) for match in LINE.finditer(rest)]
    assert found == [("dev_gain", -0.00125), ("dev_rr10", 0.8931)]
    with pytest.raises(InputError, match="exists; remove it"), MetricsFile(path):
        pass


def test_a_trial_in_a_pod_reports_the_same_value_as_a_local_search(steps: Steps, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(dict(RECIPE)))
    words = ["tune", "--trial", "retriever_1.learning_rate=4.9999e-05", "--trial", "retriever_1.temperature=0.04"]
    assert cli.main([*words, "--metrics", "log/metrics.log", "--quiet"]) == 0
    lines = [line.split(" ", 1)[1] for line in (tmp_path / "log" / "metrics.log").read_text().splitlines()]
    assert lines[-1] == "dev_rr10=0.900000", "rounded to 5e-5, where the stand-in is best"
    gains = [float(line.removeprefix("dev_gain=")) for line in lines[:-1]]
    assert gains == sorted(gains) and gains[-1] == pytest.approx(0.4)
    assert not any((tmp_path / "tune" / "trials").iterdir()), "the model of one trial is not kept on the cluster"


def test_the_command_writes_the_experiment(steps: Steps, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(dict(RECIPE)))
    assert cli.main(["tune", "--katib", "e.yaml", "--image", "registry/steps:1", "--trials", "5"]) == 0
    made = yaml.safe_load((tmp_path / "e.yaml").read_text())
    read = V1beta1Experiment.from_dict(made)
    assert read is not None and read.to_dict() == made and made["spec"]["maxTrialCount"] == 5
    assert not steps.ran and cli.main(["tune", "--katib", "f.yaml"]) == InputError.exit_code
    assert "--katib needs --image" in capsys.readouterr().err
