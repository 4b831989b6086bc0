"""What holds for every pipeline: its parameters and how they are passed on, its size, and the files in manifests/."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kfp.compiler
import pytest
import yaml

from stillhouse.cli.pipeline import compile_action
from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.catalog import RESULTS, Request
from stillhouse.kubeflow.pipelines.ir import Compiled, compile_small, leave_out_former_fields
from stillhouse.kubeflow.pipelines.manifests import SOURCES, compiled_files
from stillhouse.kubeflow.pipelines.placement_table import find_table
from stillhouse.kubeflow.pipelines.workflow_size import LARGEST_PLAIN, workflow_size
from stillhouse.pipeline.recipes import configs

YAML_BOOLEANS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Names that Kubeflow's backend does not read as text."""
BARE = ("report-end", "check")
"""The components whose pods mount no claim, so they cannot wait for one."""
ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "manifests" / "pipelines"
FILES = [f"{table}/{pipeline}.yaml" for table in SOURCES for pipeline in RESULTS]
REQUIRED = {"releases"}
"""Parameters that a user must give."""
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def version(name: str) -> dict[str, Any]:
    """Return the version of a pipeline from its file under manifests/."""
    _, found = yaml.load_all((FOLDER / name).read_text(encoding="utf-8"), Loader=LOADER)
    return found


@pytest.mark.long
def test_compiled_pipelines_are_up_to_date() -> None:
    expected = compiled_files()
    found = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert found == set(expected), "run `make compile`"
    stale = [name for name, text in expected.items() if (FOLDER / name).read_text(encoding="utf-8") != text]
    assert not stale, "run `make compile`"


@pytest.mark.parametrize("name", FILES)
def test_pipelines_are_small_and_named_by_content(name: str) -> None:
    """Kubernetes stores a pipeline in one object, and Argo a run with one and a half times the IR, each below 1 MiB."""
    content = version(name)
    spec = content["spec"]
    assert workflow_size(spec["pipelineSpec"], spec.get("platformSpec", {})) <= LARGEST_PLAIN < 1024**2
    assert len(spec["pipelineSpec"]["deploymentSpec"]["executors"]) <= 10, "each task has two pods"
    assert content["metadata"]["name"].startswith(spec["pipelineSpec"]["pipelineInfo"]["name"] + "-")
    longest = max(len(word) for word in _commands(spec["pipelineSpec"]))
    assert longest < 128 * 1024, "the longest word that Linux takes"


def test_a_pipeline_that_argo_would_refuse_is_refused_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stillhouse.kubeflow.pipelines.workflow_size.LARGEST_PLAIN", 10_000)
    with pytest.raises(InputError, match=r"pipeline zero-shot would take [\d,]+ bytes in Argo, .* about 10,000; leave"):
        compile_small(Request("zero-shot").build(find_table("cpu")))


def test_only_fields_that_kfp_writes_twice_are_removed(tmp_path: Path) -> None:
    """Without the duplicates, each pod has the same requests, limits, accelerators, secrets and claims."""
    pipeline = Request("refresh", "micro").build(find_table("gpu"))
    kfp.compiler.Compiler().compile(pipeline, str(tmp_path / "whole.yaml"))
    whole = Compiled(*yaml.load_all((tmp_path / "whole.yaml").read_text(encoding="utf-8"), Loader=LOADER))
    small = copy.deepcopy(whole)
    leave_out_former_fields(small)
    of_whole, of_small = _resources(whole.spec), _resources(small.spec)
    assert len(of_whole) == len(of_small) > 5
    for before, after in zip(of_whole, of_small, strict=True):
        kept = {name: of for name, of in before.items() if name.startswith("resource")}
        if "accelerator" in before:
            kept["accelerator"] = {
                name: of for name, of in before["accelerator"].items() if name.startswith("resource")
            }
        assert after == kept
    of_whole, of_small = _names(whole), _names(small)
    assert len(of_whole) == len(of_small) > 10
    for before, after in zip(of_whole, of_small, strict=True):
        assert after == {name: of for name, of in before.items() if name not in ("secretName", "constant")}
        assert after.keys() & {"secretNameParameter", "pvcNameParameter"}


def _resources(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [of["container"].get("resources", {}) for of in spec["deploymentSpec"]["executors"].values()]


def _names(compiled: Compiled) -> list[dict[str, Any]]:
    pods = compiled.platforms["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values()
    return [one for pod in pods for kind in ("secretAsEnv", "secretAsVolume", "pvcMount") for one in pod.get(kind, ())]


def _commands(spec: dict[str, Any]) -> Iterator[str]:
    for executor in spec["deploymentSpec"]["executors"].values():
        yield from executor["container"]["command"]


@pytest.mark.parametrize("name", FILES)
def test_parameters_are_scalars_with_a_default_and_a_description(name: str) -> None:
    parameters = version(name)["spec"]["pipelineSpec"]["root"]["inputDefinitions"]["parameters"]
    for parameter, entry in parameters.items():
        assert parameter not in YAML_BOOLEANS and isinstance(yaml.safe_load(parameter), str)
        assert entry["parameterType"] in ("STRING", "NUMBER_INTEGER", "NUMBER_DOUBLE", "BOOLEAN"), parameter
        # Kubeflow starts no run until every parameter without a default is filled in.
        assert ("defaultValue" in entry) != (parameter in REQUIRED) and entry["description"], parameter


@pytest.mark.parametrize("name", FILES)
def test_every_group_passes_the_inputs_that_its_tasks_read(name: str) -> None:
    """kfp compiles a task that reads an input that its group never receives, and the run fails on the cluster.

    Pods read the names of secrets and volume claims from the inputs of their group.
    """
    content = version(name)["spec"]
    spec = content["pipelineSpec"]
    pods = content["platformSpec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    for place, group in [("root", spec["root"]), *spec["components"].items()]:
        declared = group.get("inputDefinitions", {})
        for task in group.get("dag", {}).get("tasks", {}).values():
            for value in task.get("inputs", {}).get("parameters", {}).values():
                read = value.get("componentInputParameter")
                assert read is None or read in declared["parameters"], (place, read)
            for value in task.get("inputs", {}).get("artifacts", {}).values():
                read = value.get("componentInputArtifact")
                assert read is None or read in declared["artifacts"], (place, read)
            component = spec["components"][task["componentRef"]["name"]]
            for read in _parameters_read(pods.get(component.get("executorLabel"), {})):
                assert read in declared["parameters"], (place, read)


def _parameters_read(part: Any) -> Iterator[str]:
    """Yield the parameters of the group that a pod's specification reads."""
    if isinstance(part, dict):
        if "componentInputParameter" in part:
            yield part["componentInputParameter"]
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _parameters_read(inner)


@pytest.mark.parametrize("name", FILES)
def test_every_pod_has_a_placement(name: str) -> None:
    spec = version(name)["spec"]
    executors = spec["pipelineSpec"]["deploymentSpec"]["executors"]
    on_kubernetes = spec["platformSpec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert set(executors) == set(on_kubernetes)
    for label, pod in on_kubernetes.items():
        assert pod["securityContext"]["runAsNonRoot"] is True and int(pod["securityContext"]["runAsUser"]) > 0, label
        assert int(pod["activeDeadlineSeconds"]) > 0, label
        assert pod.get("pvcMount") or label.removeprefix("exec-") in BARE, label
        assert executors[label]["container"]["image"] == "{{$.inputs.parameters['pipelinechannel--image']}}"
        assert executors[label]["container"]["resources"]["resourceMemoryLimit"], label


@pytest.mark.parametrize("name", FILES)
def test_the_backoff_limit_allows_every_retry_its_full_timeout(name: str) -> None:
    """Argo counts `backoffMaxDuration` from the first pod on. After it, Argo ends the pod and makes no retry."""
    content = version(name)["spec"]
    spec = content["pipelineSpec"]
    pods = content["platformSpec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    retried = 0
    for group in (spec["root"], *spec["components"].values()):
        for task, entry in group.get("dag", {}).get("tasks", {}).items():
            if policy := entry.get("retryPolicy"):
                pod = pods[spec["components"][entry["componentRef"]["name"]]["executorLabel"]]
                retries, pause, most = (
                    int(str(policy[part]).removesuffix("s"))
                    for part in ("maxRetryCount", "backoffDuration", "backoffMaxDuration")
                )
                assert policy["backoffFactor"] == 2
                tries = (retries + 1) * int(pod["activeDeadlineSeconds"])
                assert most >= tries + pause * (2**retries - 1), task
                retried += 1
    assert retried


BAD = {
    "unknown": ("train", {"sorce": "mine"}, "did you mean 'source'"),
    "type": ("zero-shot", {"depth": "ten"}, "--parameter depth must be a whole number"),
    "choice": ("train", {"queries": "pair"}, "did you mean 'pairs'"),
    "no JSON": ("zero-shot", {"corpora": '["/volume/a"'}, r"corpora is not valid JSON"),
    "empty": ("zero-shot", {"corpora": "[]"}, "name at least one folder"),
    "depth": ("zero-shot", {"depth": "0"}, "depth must be at least 1"),
    "of another": ("compare-objectives", {"settings": "{}"}, "has no parameter 'settings'"),
}


@pytest.mark.parametrize("case", BAD)
def test_parameters_out_of_range_are_refused_before_anything_starts(case: str) -> None:
    pipeline, given, message = BAD[case]
    request = Request(pipeline, "simlm")
    with pytest.raises(InputError, match=message):
        request.check(request.read(given))


BAD_SETTINGS = {
    "use": ("retriver_1.seed=1", "did you mean 'retriever_1'"),
    "type": ("retriever_1.seed=one", "must be a whole number"),
    "range": ("retriever_1.seed=-1", "seed must be at least 0"),
    "no value": ("retriever_1.seed", "write STAGE.SETTING=VALUE"),
    "no setting": ("seed=3", "write STAGE.SETTING=VALUE"),
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_settings_that_a_recipe_could_not_have_are_refused_before_anything_is_compiled(case: str) -> None:
    word, message = BAD_SETTINGS[case]
    request = Request("train", "simlm", settings=(word,))
    with pytest.raises(InputError, match=message):
        request.read({})


@pytest.mark.parametrize(
    "words", [["--recipe", "simlm"], ["--set", "ingest.seed=1"], ["--nodes", "2"], ["--resources"]]
)
def test_flags_of_one_pipeline_are_refused_for_all(words: list[str]) -> None:
    with pytest.raises(InputError, match=f"{words[0]} is for one pipeline"):
        compile_action(words)


def test_a_setting_replaces_that_of_the_recipe_and_nothing_else() -> None:
    """It acts as if it were in the recipe: for the use that it names, and in the form that DVC's run cache compares."""
    chosen = Request("train", "simlm", settings=("retriever_1.batch_size=7", "pretraining.objective=mlm"))
    before, after = (configs(*request._recipe()) for request in (Request("train", "simlm"), chosen))
    assert (after["retriever_1"].batch_size, after["pretraining"].objective) == (7, "mlm")
    assert {name for name in before if before[name] != after[name]} == {"retriever_1", "pretraining"}
    assert chosen._recipe()[0]["retriever_1"]["batch_size"] == 7
