"""A search: what it tries, stops early and leaves alone, and how it continues after a kill."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from stand_in_steps import GRID, POINTS, RANGES, RECIPE, Steps, install, worth

from stillhouse.cli.tune import result
from stillhouse.core.errors import InputError
from stillhouse.experiments.tuning.search import Search
from stillhouse.experiments.tuning.space import read_space
from stillhouse.pipeline.graph import graph_of, needed
from stillhouse.pipeline.in_process import run_steps
from stillhouse.pipeline.recipes import Recipe, configs, load_recipe


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Steps:
    monkeypatch.chdir(tmp_path)
    return install(monkeypatch)


def search_in(folder: str, text: str, recipe: Recipe = RECIPE) -> Search:
    """Open a search in `folder`, as a new process does."""
    Path("space.yaml").write_text(text)
    space = read_space(Path("space.yaml"), recipe)
    return Search(recipe, "params.yaml", space, Path("artifacts"), Path(folder), 1)


def tried(search: Search) -> list[dict[str, object]]:
    return [trial.user_attrs["settings"] for trial in search.tried()]


def test_a_search_finds_the_best_of_a_small_grid(steps: Steps) -> None:
    search = search_in("tune", GRID)
    search.run(30)
    everything = [(rate, heat) for rate in (1e-5, 2e-5, 4e-5, 8e-5) for heat in (0.02, 0.05)]
    best, *others = search.finished()
    assert tuple(best.user_attrs["settings"].values()) == max(everything, key=lambda one: worth(*one))
    assert best.value == pytest.approx(worth(4e-5, 0.05), abs=1e-5) and others
    assert steps.ran.count("train-retriever") < 30, "equal settings are trained once"


def test_what_trials_share_is_the_workspace_s_which_stays_unchanged(steps: Steps) -> None:
    run_steps(needed(graph_of(RECIPE), ["retriever_1_index"]), configs(RECIPE, "params.yaml"), Path("artifacts"))
    before = {path: path.read_bytes() for path in Path("artifacts").rglob("*") if path.is_file()}
    steps.ran.clear()
    search = search_in("tune", RANGES)
    assert not steps.ran
    config = RECIPE["retriever_1"]
    assert search.default[0] == pytest.approx(worth(config["learning_rate"], config["temperature"]), abs=1e-5)
    search.run(4)
    assert set(steps.ran) <= {"train-retriever", "index"} and steps.ran.count("train-retriever") == 4
    assert {path: path.read_bytes() for path in Path("artifacts").rglob("*") if path.is_file()} == before


def test_all_trials_share_one_reading_of_a_source_that_may_change(steps: Steps) -> None:
    search = search_in("tune", RANGES, {**RECIPE, "fetch_model": {"model": "someone/on-the-hub"}})
    search.run(3)
    assert steps.ran.count("fetch-model") == 1 and steps.ran.count("train-retriever") == 4


def test_a_hopeless_trial_is_stopped_early_and_only_the_best_is_kept(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLHOUSE_WORK", "large-disk")
    search = search_in("tune", RANGES)
    search.run(12)
    stopped = [trial for trial in search.tried() if trial.state.name == "PRUNED"]
    assert stopped and all(max(trial.intermediate_values) < POINTS for trial in stopped)
    best = search.finished()[0]
    for trial in stopped:
        settings = trial.user_attrs["settings"]
        assert worth(settings["retriever_1.learning_rate"], settings["retriever_1.temperature"]) < best.value
    assert list(Path("tune/trials").iterdir()) == [search.place(best.user_attrs["settings"])]
    assert not list(Path("large-disk").glob("tune-*")), "what is finished needs no work"


def test_a_killed_search_resumes_with_its_unfinished_trial(steps: Steps) -> None:
    child = os.fork()
    if not child:
        steps.points, steps.at_point = 0, lambda count: os._exit(9) if count == 2 * POINTS + 3 else None
        search_in("killed", RANGES).run(5)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    resumed = search_in("killed", RANGES)
    assert len(tried(resumed)) < 5
    killed = resumed.study.trials[-1].params
    steps.points = 0
    resumed.run(5)
    assert len(tried(resumed)) == 5 and killed in [trial.params for trial in resumed.tried()]


def test_a_folder_belongs_to_one_search(steps: Steps) -> None:
    search_in("tune", GRID)
    with pytest.raises(InputError, match="a search with another space, recipe or corpus; choose another --folder"):
        search_in("tune", RANGES)


@pytest.mark.parametrize(("error", "ends"), [("OutOfMemoryError", False), ("Bug", True)])
def test_a_trial_out_of_memory_does_not_end_the_search_but_a_crash_does(steps: Steps, error: str, ends: bool) -> None:
    def fail(count: int) -> None:
        if count == 2 * POINTS:
            raise type(error, (RuntimeError,), {})("no")

    steps.at_point = fail
    run: Callable[[], None] = lambda: search_in("tune", RANGES).run(3)  # noqa: E731
    if ends:
        with pytest.raises(RuntimeError):
            run()
    else:
        run()
        assert [trial.state.name for trial in search_in("tune", RANGES).tried()].count("PRUNED") >= 1


def test_the_best_settings_are_printed_and_written_as_a_recipe(steps: Steps) -> None:
    search = search_in("tune", GRID)
    search.run(30)
    first, *lines = result(search, RECIPE)
    assert f"RR@10 {search.finished()[0].value:.4f}" in first and "95 % interval" in first
    assert "retriever_1.learning_rate: 4e-05" in lines
    best = {"retriever_1": RECIPE["retriever_1"] | {"learning_rate": 4e-5, "temperature": 0.05}}
    assert load_recipe(Path("tune/params.yaml")) == RECIPE | best
