"""The levels as a table, and the steps of its levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stillhouse.core.errors import InputError
from stillhouse.corpus.difference import Difference
from stillhouse.pipeline.graph import SIMLM_STEPS, graph_of, known_steps
from stillhouse.pipeline.recipes import find_recipe, load_recipe
from stillhouse.pipeline.steps.spec import named
from stillhouse.releases.refresh.graph import Levels, before, runs_of
from stillhouse.releases.refresh.plan import BUMPS, Level, Thresholds, plan
from stillhouse.releases.refresh.run import promote_whole_run

THRESHOLDS = Thresholds(fine_tune_above=0.1, pretrain_above=0.5)
PRETRAINED = ("corpus", "retriever", "index", "run", "encoder")
LEVELS_OF = {
    "the papers' run": Levels.of(SIMLM_STEPS),
    "a champion without a re-ranker": Levels(SIMLM_STEPS, PRETRAINED),
    **{
        name: Levels.of(graph_of(load_recipe(find_recipe(name))))
        for name in ("labelled", "unlabelled", "language-model")
    },
}
ALL_STEPS = {
    step.name: step for name in ("simlm", "labelled") for step in known_steps(load_recipe(find_recipe(name))).values()
}


def changed(added: int = 0, texts: tuple[int, int] = (0, 0), labels: bool = False, old: int = 100) -> Difference:
    rows, none = np.arange(added), np.arange(0)
    return Difference(rows, none, none, old, old, texts[0], texts[1], labels)


@pytest.mark.parametrize(
    ("found", "level", "reason"),
    [
        (changed(), Level.NOTHING, "nothing to do"),
        (changed(added=1, texts=(1, 0)), Level.INDEX, "at most fine_tune_above = 10.00%"),
        (changed(added=40), Level.INDEX, "at most fine_tune_above"),  # only renamed: no text is new
        (changed(added=10, texts=(10, 10)), Level.INDEX, "10.00%"),  # exactly at the threshold
        (changed(added=11, texts=(11, 10)), Level.FINE_TUNE, "above fine_tune_above = 10.00%"),
        (changed(labels=True), Level.FINE_TUNE, "queries or qrels changed; the retriever is trained"),
        (changed(added=11, texts=(11, 10), labels=True), Level.FINE_TUNE, "above fine_tune_above"),
        (changed(added=50, texts=(50, 50)), Level.FINE_TUNE, "above fine_tune_above"),
        (changed(added=50, texts=(50, 51)), Level.PRETRAIN, "above pretrain_above = 50.00%"),
        (changed(added=100, texts=(100, 100), labels=True), Level.PRETRAIN, "above pretrain_above"),
    ],
)
def test_level(found: Difference, level: Level, reason: str) -> None:
    planned = plan(found, THRESHOLDS)
    assert planned.level == level and reason in planned.reason


def test_a_recipe_without_pre_training_ends_on_the_level_below() -> None:
    planned = plan(changed(added=100, texts=(100, 100)), THRESHOLDS, pretrains=False)
    assert planned.level == Level.FINE_TUNE and "above fine_tune_above" in planned.reason


def test_a_release_of_a_whole_run_needs_what_it_made(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("graph: labelled\n")
    with pytest.raises(InputError, match="ingest/corpus does not exist"):
        promote_whole_run(tmp_path)


@pytest.mark.parametrize("name", LEVELS_OF)
@pytest.mark.parametrize("level", BUMPS)
def test_every_input_of_a_level_is_made_before_it_or_released(level: Level, name: str) -> None:
    levels = LEVELS_OF[name]
    if level == Level.PRETRAIN and "encoder" not in levels.released:
        pytest.skip("a recipe without pre-training ends on the level below")
    known = {f"champion/{name}" for name in levels.released}
    for step in (*before(levels.whole), *levels.steps_of(level)):
        ports = {port.name: port.optional for port in step.spec.inputs}
        given = {key.partition("/")[0] for key in step.inputs}
        assert given <= set(ports), step.name
        assert {name for name, optional in ports.items() if not optional} <= given, step.name
        assert set(step.inputs.values()) <= known, step.name
        known |= {f"{step.name}/{port.name}" for port in step.spec.outputs}
        assert ALL_STEPS[step.section].kind == step.kind, "the settings are of the same step"
    places = levels.released_by(level)
    assert set(places.values()) <= known
    assert set(runs_of(level).values()) <= known
    assert set(places) - {"hybrid"} == set(levels.released) - {"hybrid"}
    assert places["hybrid"] == "challenger_best/hybrid", "BM25 of the corpus as it was is never released"


def test_a_trained_challenger_competes_with_the_champion() -> None:
    [choice] = [step for step in LEVELS_OF["labelled"].steps_of(Level.FINE_TUNE) if step.name == "challenger_best"]
    assert named(choice.inputs, "candidates") == {
        "champion": "champion/retriever",
        "challenger": "challenger/retriever",
    }
    assert list(named(choice.inputs, "candidates")) == ["champion", "challenger"], "the first stays unless it is beaten"


@pytest.mark.parametrize("name", LEVELS_OF)
def test_the_challenger_is_an_average_where_only_an_average_competes(name: str) -> None:
    steps = {step.name: step for step in LEVELS_OF[name].steps_of(Level.FINE_TUNE)}
    ends = [steps["challenger"].inputs.get(end) for end in ("start", "trained")]
    averaged = ["champion/retriever", "refreshed_distilled/retriever"]
    assert ends == (averaged if name == "unlabelled" else [None, None])


def test_only_the_top_level_pretrains_and_only_training_compares_two_runs() -> None:
    steps = {level: [step.kind for step in LEVELS_OF["the papers' run"].steps_of(level)] for level in Level}
    assert steps[Level.NOTHING] == [] and steps[Level.INDEX] == ["bm25", "index", "select-best", "retrieve"]
    assert "train-retriever" in steps[Level.FINE_TUNE] and "pretrain" not in steps[Level.FINE_TUNE]
    assert "pretrain" in steps[Level.PRETRAIN]
    assert len(set(runs_of(Level.INDEX).values())) == 1 and len(set(runs_of(Level.FINE_TUNE).values())) == 2
