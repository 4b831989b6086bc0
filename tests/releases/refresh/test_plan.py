"""The ladder as a table, and the uses of its rungs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stillhouse.corpus.difference import Difference
from stillhouse.errors import InputError
from stillhouse.releases.refresh.graph import NEEDED, Ladder, before, runs_of
from stillhouse.releases.refresh.plan import BUMPS, Rung, Thresholds, after_queries, plan
from stillhouse.releases.refresh.whole_run import promote_whole_run
from stillhouse.steps.spec import named
from stillhouse.workflow.graph import USES, graph_of, known_uses
from stillhouse.workflow.recipes import find_recipe, load_recipe

LADDER = Thresholds(fine_tune_above=0.1, pretrain_above=0.5)
PRETRAINED = ("corpus", "retriever", "index", "run", "encoder")
LADDERS = {
    "the papers' run": Ladder.of(USES),
    "a champion without a re-ranker": Ladder(USES, PRETRAINED),
    **{
        name: Ladder.of(graph_of(load_recipe(find_recipe(name))))
        for name in ("labelled", "unlabelled", "language-model")
    },
}
ALL_USES = {
    use.name: use for name in ("simlm", "labelled") for use in known_uses(load_recipe(find_recipe(name))).values()
}


def changed(added: int = 0, texts: tuple[int, int] = (0, 0), labels: bool = False, old: int = 100) -> Difference:
    rows, none = np.arange(added), np.arange(0)
    return Difference(rows, none, none, old, old, texts[0], texts[1], labels)


@pytest.mark.parametrize(
    ("found", "rung", "reason"),
    [
        (changed(), Rung.NOTHING, "nothing to do"),
        (changed(added=1, texts=(1, 0)), Rung.INDEX, "at most fine_tune_above = 10.00%"),
        (changed(added=40), Rung.INDEX, "at most fine_tune_above"),  # only renamed: no text is new
        (changed(added=10, texts=(10, 10)), Rung.INDEX, "10.00%"),  # exactly at the threshold
        (changed(added=11, texts=(11, 10)), Rung.FINE_TUNE, "above fine_tune_above = 10.00%"),
        (changed(labels=True), Rung.QUERY_ONLY, "queries or qrels changed; the query tower is trained first"),
        (changed(added=10, texts=(10, 10), labels=True), Rung.QUERY_ONLY, "the query tower is trained first"),
        (changed(added=11, texts=(11, 10), labels=True), Rung.FINE_TUNE, "above fine_tune_above"),
        (changed(added=50, texts=(50, 50)), Rung.FINE_TUNE, "above fine_tune_above"),
        (changed(added=50, texts=(50, 51)), Rung.PRETRAIN, "above pretrain_above = 50.00%"),
        (changed(added=100, texts=(100, 100), labels=True), Rung.PRETRAIN, "above pretrain_above"),
    ],
)
def test_rung(found: Difference, rung: Rung, reason: str) -> None:
    planned = plan(found, LADDER)
    assert planned.rung == rung and reason in planned.reason


def test_the_query_tower_alone_is_a_trial() -> None:
    """It is kept if it gains enough and not by chance; otherwise the retriever is trained, and the reason says why."""
    tried = plan(changed(labels=True), LADDER)
    enough = after_queries(tried, True, 0.02, "nDCG@10", LADDER)
    assert enough.rung == Rung.QUERY_ONLY and enough.reason.endswith(
        "the query tower alone gains +0.020 nDCG@10 on dev"
    )
    little = after_queries(tried, True, 0.019, "nDCG@10", LADDER)
    assert little.rung == Rung.FINE_TUNE and little.reason.endswith(
        "+0.019 nDCG@10 on dev, less than query_only_gain = 0.02"
    )
    chance = after_queries(tried, False, 0.5, "nDCG@10", LADDER)
    assert chance.rung == Rung.FINE_TUNE and chance.reason.endswith("which may be chance")
    never = plan(changed(labels=True), Thresholds(query_only_gain=1))
    assert never.rung == Rung.FINE_TUNE and never.reason.endswith("queries or qrels changed; the retriever is trained")


def test_a_recipe_without_pre_training_ends_on_the_rung_below() -> None:
    planned = plan(changed(added=100, texts=(100, 100)), LADDER, pretrains=False)
    assert planned.rung == Rung.FINE_TUNE and "above fine_tune_above" in planned.reason


def test_a_release_of_a_whole_run_needs_what_it_made(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("graph: labelled\n")
    with pytest.raises(InputError, match="ingest/corpus does not exist"):
        promote_whole_run(tmp_path)


@pytest.mark.parametrize("name", LADDERS)
@pytest.mark.parametrize("rung", BUMPS)
def test_every_input_of_a_rung_is_made_before_it_or_released(rung: Rung, name: str) -> None:
    ladder = LADDERS[name]
    if rung == Rung.PRETRAIN and "encoder" not in ladder.released:
        pytest.skip("a recipe without pre-training ends on the rung below")
    known = {f"champion/{name}" for name in ladder.released}
    for use in (*before(ladder.whole), *ladder.uses_of(rung)):
        ports = {port.name: port.optional for port in use.step.inputs}
        given = {key.partition("/")[0] for key in use.inputs}
        assert given <= set(ports), use.name
        assert {name for name, optional in ports.items() if not optional} <= given, use.name
        assert set(use.inputs.values()) <= known, use.name
        known |= {f"{use.name}/{port.name}" for port in use.step.outputs}
        assert ALL_USES[use.section].step_name == use.step_name, "the settings are of the same step"
    places = ladder.released_by(rung)
    assert set(places.values()) <= known
    assert set(runs_of(rung).values()) <= known
    assert set(places) - {"hybrid"} == set(ladder.released) - {"hybrid"} and set(NEEDED[rung]) <= set(ladder.released)
    assert places["hybrid"] == "challenger_best/hybrid", "BM25 of the corpus as it was is never released"


def test_a_trained_challenger_competes_with_the_champion() -> None:
    [choice] = [use for use in LADDERS["labelled"].uses_of(Rung.FINE_TUNE) if use.name == "challenger_best"]
    assert named(choice.inputs, "candidates") == {
        "champion": "champion/retriever",
        "challenger": "challenger/retriever",
    }
    assert list(named(choice.inputs, "candidates")) == ["champion", "challenger"], "the first stays unless it is beaten"


def test_only_the_top_rung_pretrains_and_only_training_compares_two_runs() -> None:
    steps = {rung: [use.step_name for use in LADDERS["the papers' run"].uses_of(rung)] for rung in Rung}
    assert steps[Rung.NOTHING] == [] and steps[Rung.INDEX] == ["bm25", "index", "select-best", "retrieve"]
    assert "train-retriever" in steps[Rung.FINE_TUNE] and "pretrain" not in steps[Rung.FINE_TUNE]
    assert "pretrain" in steps[Rung.PRETRAIN]
    assert len(set(runs_of(Rung.INDEX).values())) == 1 and len(set(runs_of(Rung.FINE_TUNE).values())) == 2
