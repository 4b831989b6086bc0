"""A search: what it tries, stops early, writes and leaves alone, and how it continues after a kill."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from stand_in_steps import GRID, POINTS, RANGES, RECIPE, Steps, worth

from stillhouse.errors import InputError
from stillhouse.tuning.search import Search, gain_at, is_behind
from stillhouse.tuning.study import claim
from stillhouse.workflow.graph import graph_of, needed
from stillhouse.workflow.in_process import run_uses
from stillhouse.workflow.recipes import configs

Open = Callable[..., Search]


def tried(search: Search) -> list[dict[str, object]]:
    """The settings of all trials that finished or were stopped early, in order."""
    return [trial.user_attrs["settings"] for trial in search.study.trials if trial.state.name in ("COMPLETE", "PRUNED")]


def test_a_search_finds_the_best_of_a_small_grid(search_in: Open, steps: Steps) -> None:
    search = search_in(GRID)
    search.run()
    everything = {
        (rate, temperature): worth(search.graph.configs({"retriever_1.learning_rate": rate, **heat})["retriever_1"])
        for rate in (1e-5, 2e-5, 4e-5, 8e-5)
        for temperature in (0.02, 0.05)
        for heat in ({"retriever_1.temperature": temperature},)
    }
    best = search.best()
    assert best is not None
    found = search.default | best.settings
    assert (found["retriever_1.learning_rate"], found["retriever_1.temperature"]) == max(everything, key=everything.get)  # type: ignore[arg-type]
    assert best.figure.mean == pytest.approx(max(everything.values()), abs=1e-5)
    assert len(tried(search)) == len(everything), "each once: the default is one of them"


def test_the_default_comes_first_and_is_trial_0(search_in: Open, steps: Steps) -> None:
    search = search_in(RANGES)
    search.run(2)
    first, *others = search.finished()
    assert (first.number, first.settings) == (0, {})
    assert first.figure.mean == pytest.approx(worth(search.graph.configs({})["retriever_1"]), abs=1e-5)
    assert len(tried(search)) == 3 and all(one.settings for one in others)


def test_uses_that_no_setting_changes_run_once(search_in: Open, steps: Steps) -> None:
    search_in(RANGES).run(4)
    for name in ("fetch-model", "ingest", "validate", "bm25", "mine"):
        assert steps.ran.count(name) == 1, name
    assert steps.ran.count("train-retriever") == 5


def test_a_workspace_s_artifacts_are_reused_and_left_unchanged(search_in: Open, steps: Steps, tmp_path: Path) -> None:
    uses = needed(graph_of(RECIPE), ["retriever_1_index"])
    run_uses(uses, configs(RECIPE, "params.yaml"), tmp_path / "artifacts")
    before = {path: path.read_bytes() for path in (tmp_path / "artifacts").rglob("*") if path.is_file()}
    steps.ran.clear()
    search_in(RANGES).run(3)
    assert set(steps.ran) <= {"train-retriever", "index"} and steps.ran.count("train-retriever") == 3
    assert {path: path.read_bytes() for path in (tmp_path / "artifacts").rglob("*") if path.is_file()} == before


def test_a_hopeless_trial_is_given_up_early_and_leaves_nothing(search_in: Open, steps: Steps) -> None:
    search = search_in(RANGES)
    search.run(12)
    given_up = [trial for trial in search.study.trials if trial.state.name == "PRUNED"]
    assert given_up
    for trial in given_up:
        assert max(trial.intermediate_values) < 50, "it need not train to its end to be seen as worse"
        end = search.graph.configs(trial.user_attrs["settings"])["retriever_1"]
        assert worth(end) < search.best().figure.mean  # type: ignore[union-attr]
    assert steps.points < POINTS * len(tried(search))
    best = search.best()
    assert best is not None
    assert [path.name for path in (search.place.folder / "trials").iterdir()] == [
        search.place.trial(best.settings).name
    ]


def test_a_killed_search_resumes_to_the_same_result(search_in: Open, steps: Steps) -> None:
    unbroken = search_in(RANGES, "unbroken")
    unbroken.run(5)
    for moment in (4, 23):  # within the default's trial, and within a later one
        folder = f"killed-{moment}"
        kill_at(moment, lambda folder=folder: search_in(RANGES, folder).run(5), steps)  # type: ignore[misc]
        resumed = search_in(RANGES, folder)
        assert len(tried(resumed)) < 6
        resumed.run(5)
        assert tried(resumed) == tried(unbroken)
        best, expected = resumed.best(), unbroken.best()
        assert best and expected and best.settings == expected.settings and best.number == expected.number


def kill_at(moment: int, work: Callable[[], None], steps: Steps) -> None:
    """Run `work` in a child process, and end the process at point number `moment` of its trainings."""
    child = os.fork()
    if not child:
        steps.points, steps.at_point = 0, lambda count: os._exit(9) if count == moment else None
        work()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_search_ends_with_its_time_and_resumes_with_more(search_in: Open, steps: Steps) -> None:
    better = "settings: {retriever_1.learning_rate: {choices: [3.0e-5, 4.0e-5, 5.0e-5]}}"
    search = search_in(better, seconds=POINTS + 4.0)
    search.run()
    assert search.tried() == 1, "the default, and a trial that the end of the time stopped"
    assert search.left() == 0
    longer = search_in(better)
    longer.run(1)
    [stopped] = [trial for trial in search.study.trials if trial.state.name == "FAIL"]
    assert tried(longer)[1] == stopped.user_attrs["settings"], "what was stopped is taken up first"


def test_a_folder_belongs_to_one_search(tmp_path: Path) -> None:
    claim(tmp_path / "tune", {"space": "a", "recipe": "b"})
    claim(tmp_path / "tune", {"space": "a", "recipe": "b", "data": "c"})
    for about, message in (({"space": "z"}, "another space"), ({"space": "a", "data": "z"}, "another data")):
        with pytest.raises(InputError, match=f"{message}; choose another --folder"):
            claim(tmp_path / "tune", about)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="files that no search made"):
        claim(tmp_path / "mine", {})


@pytest.mark.parametrize(
    ("curve", "finished", "behind"),
    [
        ({33: 0.01}, [{100: 0.09}], True),  # 0.03 by linear interpolation
        ({33: 0.04}, [{100: 0.09}], False),
        ({33: 0.04, 67: 0.01}, [{100: 0.05}], False),  # its best gain so far counts
        ({20: -1.0}, [{100: 0.09}], False),  # too early to say
        ({50: 0.02}, [{50: 0.03}, {50: 0.01}, {50: 0.01}], False),  # the median counts, not the best
        ({50: 0.02}, [], False),
        ({100: -0.1}, [{50: 0.0, 90: 0.0}], True),
    ],
)
def test_a_trial_is_behind_if_it_gained_less_than_the_median(
    curve: dict[int, float], finished: list[dict[int, float]], behind: bool
) -> None:
    assert is_behind(curve, finished) == behind


def test_gains_between_measurements_lie_on_straight_lines() -> None:
    np = pytest.importorskip("numpy")
    curve = {20: 0.1, 60: 0.05, 100: 0.4}
    for part in range(101):
        assert gain_at(curve, part) == pytest.approx(np.interp(part, [0, *curve], [0.0, *curve.values()]))


def test_a_trial_that_runs_out_of_memory_does_not_end_the_search(search_in: Open, steps: Steps) -> None:
    def fill(count: int) -> None:
        if POINTS < count <= 2 * POINTS:
            raise type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory")

    steps.at_point = fill
    search = search_in(GRID)
    search.run()
    states = [trial.state.name for trial in search.study.trials]
    assert states[:2] == ["COMPLETE", "PRUNED"] and "RUNNING" not in states
    assert len(tried(search)) == 8


def test_a_crash_of_the_code_ends_the_search(search_in: Open, steps: Steps) -> None:
    def crash(count: int) -> None:
        if count > POINTS:
            raise RuntimeError("a bug")

    steps.at_point = crash
    with pytest.raises(RuntimeError, match="a bug"):
        search_in(GRID).run()


@pytest.mark.parametrize(
    "settings",
    (
        "retriever_1.patience: {min: 1, max: 5}",
        "retriever_1.matryoshka_dims: {choices: [[32, 64], [16]]}\nalways: {retriever_1.patience: 2}",
    ),
)
def test_a_recipe_may_omit_the_searched_settings(search_in: Open, steps: Steps, settings: str) -> None:
    search = search_in(f"settings:\n  {settings}\n")
    search.run(2)
    assert search.finished()[0].settings == {}
