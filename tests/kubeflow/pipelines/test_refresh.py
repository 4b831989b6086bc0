"""The refresh as a pipeline: its parameters, its levels, and the input of its last task."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from exit_handler import Tasks, guarded_tasks

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.catalog import RESULTS, Request
from stillhouse.kubeflow.pipelines.ir import Compiled, compile_small
from stillhouse.kubeflow.pipelines.placement_table import find_table
from stillhouse.kubeflow.pipelines.pods import last_sentence
from stillhouse.kubeflow.pipelines.tasks import as_json
from stillhouse.kubeflow.pods.refresh import run_check, run_plan, run_release
from stillhouse.pipeline.graph import SIMLM_STEPS, known_steps
from stillhouse.pipeline.recipes import find_recipe, load_recipe
from stillhouse.releases.promotion import Outcome
from stillhouse.releases.refresh import on_cluster
from stillhouse.releases.refresh.graph import Levels
from stillhouse.releases.refresh.on_cluster import Planned, taken_from_champion, write_summary
from stillhouse.releases.refresh.plan import Level, Parameters, write_recipe

LEVELS = Levels.of(SIMLM_STEPS)
REPOSITORY = "https://git.example/search/releases.git"


@pytest.fixture(scope="module")
def whole() -> Compiled:
    return compile_small(Request("refresh", "micro").build(find_table("gpu")))


@pytest.fixture
def compiled(whole: Compiled) -> dict[str, Any]:
    return whole.spec


def tasks_of(compiled: dict[str, Any], component: str) -> Tasks:
    return compiled["components"][component]["dag"]["tasks"]  # type: ignore[no-any-return]


def climbed(compiled: dict[str, Any]) -> Tasks:
    """The tasks that run if the corpus changed, by label."""
    [task] = [of for of in guarded_tasks(compiled).values() if of.get("triggerPolicy", {}).get("condition")]
    assert "!= 'nothing'" in task["triggerPolicy"]["condition"]
    return {one["taskInfo"]["name"]: one for one in tasks_of(compiled, task["componentRef"]["name"]).values()}


def at(folder: Path, name: str) -> SimpleNamespace:
    return SimpleNamespace(path=str(folder / name), metadata={}, log_metric=lambda name, value: None)


def passed_corpus(folder: Path) -> None:
    """The folder of a stage with a corpus that passed."""
    with whole_folder(folder / "ingest" / "corpus") as staging:
        write_manifest(staging, "ingest", {}, {}, {})
    with whole_folder(folder / "validate" / "validation") as staging:
        write_manifest(staging, "validate", {}, {}, {"passed": True})


def test_the_promotion_works_with_the_parameters_of_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check writes the parameters and the recipe, which the plan and the promotion read.

    What a stage made is promoted by the names of its steps.
    """
    asked = Parameters(releases=REPOSITORY, source="corpus", alpha=0.01, least_queries=7, again=True)
    promoted: list[Any] = []

    def release(parameters: Parameters, text: str, planned: Planned, made: dict[str, Path]) -> Outcome:
        promoted.append((parameters, yaml.safe_load(text), planned, made))
        return Outcome("released", None, "it is better", in_use=True)

    plan_made = Planned(Level.INDEX, "v1.0.0", "one text is new")
    monkeypatch.setattr(on_cluster, "look", lambda parameters: "v1.0.0")
    monkeypatch.setattr(on_cluster, "plan_refresh", lambda *given: plan_made)
    monkeypatch.setattr(on_cluster, "release_refresh", release)
    passed_corpus(tmp_path / "corpus")
    text = as_json({"distilled": {"learning_rate": "2e-5"}})
    run_check(vars(asked) | {"recipe": at(tmp_path, "recipe"), "recipe_text": text})
    given = {name: at(tmp_path, name) for name in ("recipe", "corpus", "released", "refreshed", "summary")}
    assert run_plan(given) == "index"
    outputs = {
        "planned": given["refreshed"],
        "refreshed": at(tmp_path, "end"),
        "summary": at(tmp_path, "end.md"),
        "metrics": at(tmp_path, "m"),
    }
    run_release({name: given[name] for name in ("recipe", "corpus")} | outputs)
    [(parameters, recipe, planned, made)] = promoted
    assert (parameters, planned) == (asked, plan_made) and recipe["distilled"] == {"learning_rate": "2e-5"}
    folder = tmp_path / "corpus"
    assert made == {of: folder / of for of in ("ingest/corpus", "validate/validation")}


def test_one_task_runs_any_level_and_one_promotes(compiled: dict[str, Any]) -> None:
    assert set(climbed(compiled)) == {"challenger", "promote"}
    every = {step.name for level in Level for step in LEVELS.steps_of(level)}
    assert {step.name for step in LEVELS.every_stage().steps} == every, "its pod is placed for all of them"


def test_the_promotion_receives_what_the_level_made(compiled: dict[str, Any]) -> None:
    given = climbed(compiled)["promote"]["inputs"]["artifacts"]
    assert set(given) == {"corpus", "challenger", "planned", "recipe"}


def test_a_level_takes_only_what_it_reads_from_the_release() -> None:
    assert taken_from_champion(LEVELS, Level.NOTHING) == () and taken_from_champion(LEVELS, Level.INDEX) == (
        "retriever",
    )
    assert taken_from_champion(LEVELS, Level.FINE_TUNE) == ("reranker", "retriever")
    assert set(taken_from_champion(LEVELS, Level.PRETRAIN)) == {"retriever", "encoder", "reranker", "generator"}


def test_only_pods_that_need_git_have_its_key(whole: Compiled) -> None:
    pods = whole.platforms["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    holders = {label for label, pod in pods.items() if pod.get("secretAsVolume")}
    assert holders == {"exec-corpus", "exec-check-refresh", "exec-plan-refresh", "exec-release-refresh"}


def test_the_recipe_travels_with_the_pipeline_once(compiled: dict[str, Any]) -> None:
    given = guarded_tasks(compiled)["check_parameters"]["inputs"]["parameters"]
    text = given["recipe_text"]["runtimeValue"]["constant"]
    carried, recipe = yaml.safe_load(text), load_recipe(find_recipe("micro"))
    assert carried == recipe
    assert set(yaml.safe_load(write_recipe(carried))) == set(known_steps(recipe)), "DVC looks for every step's section"
    assert yaml.safe_dump(compiled, width=10**9).count("max_articles") == 1


@pytest.mark.parametrize(("kind", "code"), [("released", 0), ("already released", 0), ("refused", 4), ("", 0)])
def test_a_local_run_ends_with_the_exit_code_of_the_command(kind: str, code: int, tmp_path: Path) -> None:
    planned = Planned(Level.INDEX, "v1.0.0", "one text is new")
    write_summary(tmp_path, planned, Outcome(kind, None, "so it is") if kind else None)
    assert Request("refresh").exit_code(tmp_path) == code and (tmp_path / RESULTS["refresh"].page).is_file()


@pytest.mark.parametrize("before", [True, False])
def test_a_refusal_is_the_last_sentence_of_its_task(
    before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`submit --wait` finds it in the log, and a local run ends with the exit code of the command."""
    level = Level.NOTHING if before else Level.INDEX
    planned = Planned(level, "v1.0.0", "it was refused before" if before else "one text is new", refused=before)
    refused = Outcome("refused", None, "v1.0.0 stays: it is worse")
    monkeypatch.setattr(on_cluster, "plan_refresh", lambda *given: planned)
    monkeypatch.setattr(on_cluster, "release_refresh", lambda *given: refused)
    passed_corpus(tmp_path / "corpus")
    monkeypatch.setattr(on_cluster, "look", lambda parameters: "v1.0.0")
    asked = vars(Parameters(releases=REPOSITORY, source="corpus"))
    run_check(asked | {"recipe": at(tmp_path, "recipe"), "recipe_text": "{}"})
    capsys.readouterr()
    given = {name: at(tmp_path, name) for name in ("recipe", "corpus", "released", "refreshed", "summary")}
    run_plan(given)
    assert last_sentence(capsys.readouterr().out.splitlines()) == ("refused: it was refused before" if before else "")
    if not before:
        outputs = {name: at(tmp_path / "end", name) for name in ("refreshed", "summary", "metrics")}
        run_release({"recipe": given["recipe"], "planned": given["refreshed"]} | outputs)
        assert last_sentence(capsys.readouterr().out.splitlines()) == "refused: v1.0.0 stays: it is worse"
    assert Request("refresh").exit_code(tmp_path / "refreshed" if before else tmp_path / "end" / "refreshed") == 4


BAD: dict[str, tuple[dict[str, str], str]] = {
    "no repository": ({}, "releases is empty; give the URL of the git repository"),
    "levels": ({"fine_tune_above": "0.5", "pretrain_above": "0.1"}, "is below fine_tune_above"),
    "share": ({"fine_tune_above": "-1"}, "fine_tune_above must be at least 0"),
    "two measures": ({"measure": "RR@10 nDCG@10"}, "must name exactly one measure"),
    "unknown": ({"recipe": "mine"}, "has no parameter 'recipe'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_parameters_are_refused_before_anything_is_sent(case: str) -> None:
    given, message = BAD[case]
    request = Request("refresh")
    with pytest.raises(InputError, match=message):
        request.check(request.read(({"releases": REPOSITORY} if given else {}) | given))
