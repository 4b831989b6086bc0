"""Which steps one Kubeflow task runs: every use once, nothing before its inputs, and few tasks."""

from __future__ import annotations

import pytest

from stillhouse.releases.refresh.graph import Ladder, tasks_of_rung
from stillhouse.releases.refresh.plan import Rung
from stillhouse.workflow.graph import USES, graph_of
from stillhouse.workflow.recipes import SHIPPED, load_recipe
from stillhouse.workflow.tasks import VERDICT, Task, tasks_of
from stillhouse.workflow.uses import Use, used

RECIPES = sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def names(tasks: tuple[Task, ...]) -> dict[str, list[str]]:
    return {task.name: [use.name for use in task.uses] for task in tasks}


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_use_runs_once_and_after_what_it_reads(recipe: str) -> None:
    uses = graph_of(load_recipe(SHIPPED / f"{recipe}.yaml"))
    tasks = tasks_of(uses)
    assert sorted(use.name for task in tasks for use in task.uses) == sorted(use.name for use in uses)
    there: set[str] = set()
    for task in tasks:
        assert set(task.inputs) <= there, task.name
        inside = set(task.inputs)
        for use in task.uses:
            assert set(use.inputs.values()) <= inside, use.name
            inside |= {f"{use.name}/{port.name}" for port in use.step.outputs}
        assert set(task.outputs) <= inside
        there |= set(task.outputs)
    assert len(tasks) <= 9, "with the check and the end at most 12, as the documents say"


def test_tasks_of_the_papers_run() -> None:
    tasks = tasks_of(USES)
    assert list(names(tasks)) == [
        "prepare",
        "pretraining",
        "first_retriever",
        "second_retriever",
        "distillation",
        "evaluation",
    ]
    found = {task.name: task for task in tasks}
    assert "mine_1/negatives" in found["second_retriever"].inputs
    student = {"retriever_2/retriever", "retriever_2_index/index"}
    assert student <= set(found["distillation"].inputs), "the teacher is compared with it"
    assert "retriever_1_index/index" not in found["distillation"].inputs
    assert "best/index" not in found["evaluation"].outputs, "what nothing else reads stays inside"
    wanted = tasks_of(USES, wanted=["best/index"])[-1]
    assert "best/index" in wanted.outputs
    assert {"best/retriever", "evaluate/evaluation"} <= set(wanted.outputs), "models, and what is made for people"


def test_what_a_recipe_adds_joins_what_it_reads_and_a_training_begins_a_task() -> None:
    stages = {
        "round_2": {
            "step": "train-retriever",
            "settings_of": "distilled",
            "corpus": "ingest/corpus",
            "encoder": "distilled/retriever",
            "negatives": "mine_2/negatives",
            "system": "round_2/retriever",
        },
        "zero_shot_hybrid": {
            "step": "hybrid",
            "corpus": "ingest/corpus",
            "retriever": "fetch_model/encoder",
            "index": "zero_shot_index/index",
            "bm25": "bm25/bm25",
        },
    }
    found = names(tasks_of(graph_of({"stages": stages})))
    assert found["round_2"] == ["round_2", "round_2_index", "round_2_run"]
    assert "zero_shot_hybrid" in found["first_retriever"]


def test_two_tasks_never_wait_for_each_other() -> None:
    """`a` and `c` belong to one task, but `c` reads from a task in which another use reads `a`."""
    corpus = {"corpus": "ingest/corpus"}
    uses = [
        Use("ingest", "ingest"),
        Use("a", "bm25", corpus),
        Use("b", "read-negatives", corpus | {"negatives": "a/negatives"}),
        Use("b_2", "read-negatives", corpus),
        Use("c", "evaluate", corpus | {"run/b": "b_2/negatives"}),
    ]
    rows = {"ingest": "first", "a": "one", "b": "two", "b_2": "two", "c": "one"}
    tasks = tasks_of(uses, rows)
    assert names(tasks) == {"first": ["ingest"], "one": ["a"], "two": ["b", "b_2"], "c": ["c"]}


def test_tasks_that_only_wait_for_the_corpus_get_the_verdict() -> None:
    uses = graph_of(load_recipe(SHIPPED / "labelled.yaml"))
    tasks = tasks_of(uses)
    after_it = [task for task in tasks if {used(source) for source in task.inputs} <= {u.name for u in tasks[0].uses}]
    assert [task.name for task in after_it[1:]] == ["first_retriever"]
    assert VERDICT in after_it[1].inputs and VERDICT in tasks[0].outputs


@pytest.mark.parametrize("rung", [rung for rung in Rung if rung not in (Rung.NOTHING, Rung.QUERY_ONLY)])
def test_a_rung_has_few_tasks(rung: Rung) -> None:
    """A pipeline decides its rung before any training, so it never reaches `query_only`."""
    uses = Ladder.of(graph_of({})).uses_of(rung)
    found = names(tasks_of(uses, tasks_of_rung(rung)))
    expected = {
        Rung.INDEX: ["challenger"],
        Rung.FINE_TUNE: ["champion", "challenger"],
        Rung.PRETRAIN: ["pretraining", "champion", "challenger"],
    }
    assert sorted(found) == sorted(expected[rung])


@pytest.mark.parametrize("name", ["distillation", "evaluation", "first_retriever", "prepare"])
def test_a_training_may_be_named_like_a_task(name: str) -> None:
    stages = {name: {"step": "train-retriever", "corpus": "ingest/corpus", "encoder": "distilled/retriever"}}
    tasks = tasks_of(graph_of({"stages": {name: {**stages[name], "negatives": "mine_2/negatives"}}}))
    found = names(tasks)
    assert found[f"{name}_2"][0] == name, "its own task, since a task of that name comes before it"
    assert list(found).index("distillation") < list(found).index(f"{name}_2")
