"""The refresh as a pipeline: its parameters, its rungs, and the input of its last task."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from stillhouse.artifacts import whole_folder, write_manifest, write_whole_json
from stillhouse.config import field_types
from stillhouse.errors import InputError
from stillhouse.kubernetes.cluster import waiting
from stillhouse.kubernetes.pods.refresh import MADE, NOT_MADE, TAKEN, run_check, run_plan, run_release
from stillhouse.pipelines.catalog import RESULTS, Request
from stillhouse.pipelines.ir import Compiled, compile_small
from stillhouse.pipelines.placement_table import find_table
from stillhouse.pipelines.refresh import build_refresh
from stillhouse.pipelines.refresh_tasks import check_refresh
from stillhouse.releases.promotion import Outcome
from stillhouse.releases.refresh import on_cluster
from stillhouse.releases.refresh.graph import Ladder
from stillhouse.releases.refresh.on_cluster import Planned, taken_from_champion, write_summary
from stillhouse.releases.refresh.parameters import Parameters, write_recipe
from stillhouse.releases.refresh.plan import Rung
from stillhouse.workflow.graph import USES, known_uses
from stillhouse.workflow.recipes import find_recipe, load_recipe

LADDER = Ladder.of(USES)
REPOSITORY = "https://git.example/search/releases.git"
Tasks = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def whole() -> Compiled:
    return compile_small(Request("refresh", "micro").build(find_table("gpu")))


@pytest.fixture
def compiled(whole: Compiled) -> dict[str, Any]:
    return whole.spec


def tasks_of(compiled: dict[str, Any], component: str) -> Tasks:
    return compiled["components"][component]["dag"]["tasks"]  # type: ignore[no-any-return]


def inside(compiled: dict[str, Any]) -> Tasks:
    """The tasks inside the exit handler, by label."""
    [handler] = [name for name in compiled["components"] if name.startswith("comp-exit-handler")]
    return {task["taskInfo"]["name"]: task for task in tasks_of(compiled, handler).values()}


def groups(compiled: dict[str, Any]) -> dict[str, Tasks]:
    """The tasks of every rung, by the rung that its condition names."""
    found = {}
    for task in inside(compiled).values():
        condition = task.get("triggerPolicy", {}).get("condition", "")
        for rung in Rung:
            if f"'{rung}'" in condition:
                own = tasks_of(compiled, task["componentRef"]["name"])
                found[str(rung)] = {task["taskInfo"]["name"]: task for task in own.values()}
    return found


def steps_of(task: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what a task receives about the steps that it runs, or an empty dict if it runs none."""
    given = task["inputs"]["parameters"].get("steps")
    return json.loads(given["runtimeValue"]["constant"]) if given else {}


def test_the_check_takes_every_parameter_of_the_run() -> None:
    taken = check_refresh.python_func.__annotations__
    assert {name: taken[name] for name in field_types(Parameters)} == field_types(Parameters)


def test_the_promotion_works_with_the_parameters_of_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check passes the parameters to the plan, which passes them and the recipe to the promotion.

    An output that the run did not need is not promoted.
    """
    asked = Parameters(releases=REPOSITORY, source="corpus", alpha=0.01, least_queries=7, again=True)
    recipe = write_recipe({"distilled": {"learning_rate": "2e-5"}})
    promoted: list[Any] = []

    def release(parameters: Parameters, text: str, planned: Planned, made: dict[str, Path]) -> Outcome:
        promoted.append((parameters, text, planned, made))
        return Outcome("released", None, "it is better", in_use=True)

    plan_made = Planned(Rung.INDEX, "v1.0.0", "one text is new")
    monkeypatch.setattr(on_cluster, "look", lambda parameters: "v1.0.0")
    monkeypatch.setattr(on_cluster, "plan_refresh", lambda *given: plan_made)
    monkeypatch.setattr(on_cluster, "release_refresh", release)
    with whole_folder(tmp_path / "validation") as staging:
        write_manifest(staging, "validate", {}, {}, {"passed": True})

    def at(name: str) -> SimpleNamespace:
        return SimpleNamespace(path=str(tmp_path / name), metadata={}, log_metric=lambda name, value: None)

    run_check(vars(asked) | {"asked": at("asked")})
    plan = {name: at(name) for name in ("corpus", "validation", "asked", *TAKEN, "refreshed", "summary")}
    assert run_plan(plan | {"recipe": recipe}) == "index"
    outputs = {"refreshed": at("released"), "summary": at("released.md"), "metrics": at("metrics")}
    write_whole_json(tmp_path / "teacher" / NOT_MADE, {})
    run_release(
        {"planned": at("refreshed"), "corpus": at("corpus"), "teacher": at("teacher"), "bm25_run": None} | outputs
    )
    assert promoted == [(asked, recipe, plan_made, {"ingest/corpus": tmp_path / "corpus"})]


def test_the_corpus_s_place_is_the_recipe_s(compiled: dict[str, Any]) -> None:
    declared = compiled["root"]["inputDefinitions"]["parameters"]
    assert declared["source"]["defaultValue"] == load_recipe(find_recipe("micro"))["ingest"]["source"]
    prepare = inside(compiled)["prepare"]
    for name in ("source", "repo", "revision"):
        parameter = steps_of(prepare)["ingest"]["chosen"][name]
        given = prepare["inputs"]["parameters"][parameter]
        assert given == {"componentInputParameter": f"pipelinechannel--{name}"}


def test_every_rung_has_its_steps_and_a_promotion(compiled: dict[str, Any]) -> None:
    found = groups(compiled)
    assert set(found) == {"index", "query_only", "fine_tune", "pretrain"}
    assert set(found.pop("query_only")) == {"query_trial", "promote"}
    for rung, tasks in found.items():
        done = [use for task in tasks.values() for use in steps_of(task)]
        assert sorted(done) == sorted(use.name for use in LADDER.uses_of(Rung(rung)))
        assert [name for name, task in tasks.items() if not steps_of(task)] == ["promote"]


def test_nothing_is_compared_before_the_corpus_has_passed(compiled: dict[str, Any]) -> None:
    tasks = inside(compiled)
    assert list(steps_of(tasks["prepare"])) == ["ingest", "validate"]
    assert tasks["prepare"]["dependentTasks"] == ["check-refresh"]
    assert tasks["plan"]["dependentTasks"] == ["check-refresh", "prepare"]
    verdict = tasks["plan"]["inputs"]["artifacts"]["validation"]["taskOutputArtifact"]
    assert verdict == {"outputArtifactKey": "validate__validation", "producerTask": "prepare"}
    rungs = [task for task in tasks.values() if task.get("triggerPolicy", {}).get("condition")]
    assert len(rungs) == 4 and all("plan-refresh" in task["dependentTasks"] for task in rungs)


def test_the_promotion_receives_every_output_of_its_rung(compiled: dict[str, Any]) -> None:
    for rung, tasks in groups(compiled).items():
        made = {f"{use.name}/{port.name}" for use in LADDER.climbed_from(Rung(rung)) for port in use.step.outputs}
        given = set(tasks["promote"]["inputs"]["artifacts"]) - {"planned"}
        assert {MADE[name] for name in given} == made | {"ingest/corpus", "validate/validation"}


@pytest.mark.parametrize("rung", ["index", "query_only", "fine_tune", "pretrain"])
def test_components_name_every_folder_of_a_rung(rung: str) -> None:
    made = {f"{use.name}/{port.name}" for use in LADDER.climbed_from(Rung(rung)) for port in use.step.outputs}
    assert made <= set(MADE.values()) and set(taken_from_champion(LADDER, Rung(rung))) <= set(TAKEN)


def test_a_rung_takes_only_what_it_reads_from_the_release() -> None:
    assert taken_from_champion(LADDER, Rung.NOTHING) == () and taken_from_champion(LADDER, Rung.INDEX) == ("retriever",)
    assert taken_from_champion(LADDER, Rung.FINE_TUNE) == ("reranker", "retriever")
    assert set(taken_from_champion(LADDER, Rung.PRETRAIN)) == set(TAKEN)
    assert taken_from_champion(LADDER, Rung.QUERY_ONLY) == taken_from_champion(LADDER, Rung.FINE_TUNE)


def test_only_pods_that_need_git_have_its_key(whole: Compiled) -> None:
    pods = whole.platforms["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    holders = {label for label, pod in pods.items() if pod.get("secretAsVolume")}
    assert holders == {"exec-prepare", "exec-check-refresh", "exec-plan-refresh", "exec-release-refresh"}


def test_the_recipe_travels_with_the_pipeline(compiled: dict[str, Any]) -> None:
    """The plan receives the recipe, and passes it on to the promotion."""
    text = inside(compiled)["plan"]["inputs"]["parameters"]["recipe"]["runtimeValue"]["constant"]
    carried, recipe = yaml.safe_load(text), load_recipe(find_recipe("micro"))
    assert carried == {name: values for name, values in recipe.items() if values}
    assert set(yaml.safe_load(write_recipe(carried))) == set(known_uses(recipe)), "DVC looks for every stage's section"
    planned = {"outputArtifactKey": "refreshed", "producerTask": "plan-refresh"}
    trial = {"outputArtifactKey": "refreshed", "producerTask": "query-trial"}
    for rung in inside(compiled).values():
        if rung.get("triggerPolicy", {}).get("condition"):
            [channel] = [
                name for name, of in rung["inputs"]["artifacts"].items() if of["taskOutputArtifact"] == planned
            ]
            tasks = tasks_of(compiled, rung["componentRef"]["name"]).values()
            [promotion] = [task for task in tasks if task["taskInfo"]["name"] == "promote"]
            given = promotion["inputs"]["artifacts"]["planned"]
            if "query_only" in rung["triggerPolicy"]["condition"]:
                assert given == {"taskOutputArtifact": trial}, "the trial decides again"
            else:
                assert given == {"componentInputArtifact": channel}


def test_only_known_settings_compile() -> None:
    with pytest.raises(InputError, match="unknown section 'distiled'"):
        build_refresh({"distiled": {}})


@pytest.mark.parametrize(("kind", "code"), [("released", 0), ("already released", 0), ("refused", 4), ("", 0)])
def test_a_local_run_ends_with_the_exit_code_of_the_command(kind: str, code: int, tmp_path: Path) -> None:
    planned = Planned(Rung.INDEX, "v1.0.0", "one text is new")
    write_summary(tmp_path, planned, Outcome(kind, None, "so it is") if kind else None)
    assert Request("refresh").exit_code(tmp_path) == code and (tmp_path / RESULTS["refresh"].page).is_file()


@pytest.mark.parametrize("before", [True, False])
def test_a_refusal_is_the_last_sentence_of_its_task(
    before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`submit --wait` finds it in the log, and a local run ends with the exit code of the command."""
    rung = Rung.NOTHING if before else Rung.INDEX
    planned = Planned(rung, "v1.0.0", "it was refused before" if before else "one text is new", refused=before)
    refused = Outcome("refused", None, "v1.0.0 stays: it is worse")
    monkeypatch.setattr(on_cluster, "plan_refresh", lambda *given: planned)
    monkeypatch.setattr(on_cluster, "release_refresh", lambda *given: refused)
    with whole_folder(tmp_path / "validation") as staging:
        write_manifest(staging, "validate", {}, {}, {"passed": True})

    def at(name: str) -> SimpleNamespace:
        return SimpleNamespace(path=str(tmp_path / name), metadata={}, log_metric=lambda name, value: None)

    write_whole_json(tmp_path / "asked" / "asked.json", {"parameters": vars(Parameters(releases=REPOSITORY))})
    plan = {name: at(name) for name in ("corpus", "validation", "asked", *TAKEN, "refreshed", "summary")}
    run_plan(plan | {"recipe": "{}"})
    assert waiting.said(capsys.readouterr().out.splitlines()) == ("refused: it was refused before" if before else "")
    if not before:
        run_release(
            {"planned": at("refreshed")} | {name: at(f"end/{name}") for name in ("refreshed", "summary", "metrics")}
        )
        assert waiting.said(capsys.readouterr().out.splitlines()) == "refused: v1.0.0 stays: it is worse"
    assert Request("refresh").exit_code(tmp_path / "refreshed" if before else tmp_path / "end" / "refreshed") == 4


BAD: dict[str, tuple[dict[str, str], str]] = {
    "no repository": ({}, "releases is empty; give the URL of the git repository"),
    "ladder": ({"fine_tune_above": "0.5", "pretrain_above": "0.1"}, "is below fine_tune_above"),
    "share": ({"fine_tune_above": "-1"}, "fine_tune_above must be at least 0"),
    "level": ({"alpha": "2"}, "alpha must be from 0 to 1"),
    "queries": ({"least_queries": "0"}, "least_queries must be at least 1"),
    "measure": ({"measure": "RR@ten"}, "RR@ten"),
    "two measures": ({"measure": "RR@10 nDCG@10"}, "must name exactly one measure"),
    "unknown": ({"recipe": "mine"}, "has no parameter 'recipe'"),
    "type": ({"again": "perhaps"}, "--parameter again must be true or false"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_parameters_are_refused_before_anything_is_sent(case: str) -> None:
    given, message = BAD[case]
    request = Request("refresh")
    with pytest.raises(InputError, match=message):
        request.check(request.read(({"releases": REPOSITORY} if given else {}) | given))
