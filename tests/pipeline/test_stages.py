"""A recipe's `stages` change and add steps; the tests check the resulting graph."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented_stages import documented_re_ranker, documented_stages

from stillhouse.core.errors import InputError
from stillhouse.pipeline.dvc_file import render
from stillhouse.pipeline.graph import GRAPHS, SIMLM_STEPS, GraphStep, graph_of, known_steps
from stillhouse.pipeline.graph_steps import stages_of, with_stages
from stillhouse.pipeline.recipes import configs, find_recipe, load_recipe
from stillhouse.pipeline.step_command import read_section
from stillhouse.pipeline.steps.spec import named

NEW = {
    "step": "train-retriever",
    "settings_of": "distilled",
    "corpus": "ingest/corpus",
    "encoder": "distilled/retriever",
    "negatives": "mine_2/negatives",
}
NAMES = [step.name for step in SIMLM_STEPS]


def graph(**stages: Any) -> dict[str, GraphStep]:
    return {step.name: step for step in graph_of({"stages": stages})}


def well_formed(steps: tuple[GraphStep, ...]) -> None:
    """Check that every step gets what it needs, of the right kind, from an earlier step."""
    earlier: dict[str, str] = {}
    for step in steps:
        for key, source in step.inputs.items():
            assert earlier.get(source) == step.spec.port_of(key).kind, (step.name, key, source)
        assert all(port.optional or port.keys(step.inputs) for port in step.spec.inputs), step.name
        earlier |= {f"{step.name}/{port.name}": port.kind for port in step.spec.outputs}


def test_without_stages_the_graph_is_the_papers() -> None:
    assert graph_of({}) == graph_of({"stages": {}}) == graph_of({"ingest": {}, "stages": None}) == SIMLM_STEPS


def test_inputs_can_be_replaced_and_steps_are_reordered() -> None:
    found = graph(
        retriever_1={"encoder": "retriever_1_unpretrained/retriever"},
        retriever_1_unpretrained={"settings_of": "retriever_2"},
    )
    assert found["retriever_1"].inputs["encoder"] == "retriever_1_unpretrained/retriever"
    assert found["retriever_1_unpretrained"].section == "retriever_2"
    assert "others" not in graph(mine_1={"others": None})["mine_1"].inputs
    found = graph(retriever_1_unpretrained={"encoder": "distilled/retriever"})
    assert list(found).index("retriever_1_unpretrained") > list(found).index("distilled")
    well_formed(tuple(found.values()))


def test_a_new_system_is_one_row() -> None:
    found = graph(distilled_2=NEW | {"system": "distilled_2/retriever"})
    like = known_steps({})
    for part in ("index", "run"):
        made, known = found[f"distilled_2_{part}"], like[f"distilled_{part}"]
        expected = {key: source.replace("distilled", "distilled_2") for key, source in known.inputs.items()}
        assert (made.inputs, made.kind, made.section) == (expected, known.kind, known.name)
    added = dict(found["evaluate"].inputs.items() - like["evaluate"].inputs.items())
    assert added == {"run/distilled_2": "distilled_2_run/run", "curves/distilled_2": "distilled_2/curves"}
    assert list(named(found["evaluate"].inputs, "run"))[-3:] == ["distilled", "distilled_2", "best"]
    chosen = dict(found["best"].inputs.items() - like["best"].inputs.items())
    assert chosen == {
        "candidates/distilled_2": "distilled_2/retriever",
        "indexes/distilled_2": "distilled_2_index/index",
    }
    assert list(found)[-1] == "evaluate" and set(found) - set(NAMES) == {
        f"distilled_2{end}" for end in ("", "_index", "_run")
    }


WRONG = [
    (
        {"retriver_2": {"encoder": "x/y"}},
        "there is no such step, and a new one needs `step`; did you mean 'retriever_2'?",
    ),
    ({"lm_head": None}, "stages.lm_head: write its inputs"),
    ({"retriever_2": {"encodr": "fetch_model/encoder"}}, "no input 'encodr'; did you mean 'encoder'?"),
    ({"retriever_2": {"encoder": "retriever_1/retrever"}}, "did you mean 'retriever_1/retriever'?"),
    ({"retriever_2": {"encoder": "bm25/run"}}, "encoder cannot be 'bm25/run'"),
    ({"retriever_2": {"negatives": None}}, "stages.retriever_2: it needs `negatives`"),
    ({"retriever_2": {"step": "mine"}}, "`step` is for new steps"),
    ({"retriever_2": {"settings_of": "mine_1"}}, "not another train-retriever"),
    ({"evaluate": {"run": "bm25/run"}}, "evaluate has no input 'run'; did you mean 'run/NAME'?"),
    ({"evaluate": {"run/a b": "bm25/run"}}, "evaluate has no input 'run/a b'"),
    ({"new": {"step": "train-retriver"}}, "there is no step 'train-retriver'; did you mean 'train-retriever'?"),
    ({"new": {"step": "validate"}}, "stages.new: it needs `corpus`"),
    ({"New one": {"step": "validate", "corpus": "ingest/corpus"}}, "lowercase letters"),
    ({"stages": {"step": "validate", "corpus": "ingest/corpus"}}, "unused name"),
    ({"new": {"system": "bm25/negatives"}}, "system cannot be 'bm25/negatives'"),
    ({"distilled_2": NEW, "distilled": {"encoder": "distilled_2/retriever"}}, "form a cycle"),
    (["lm_head"], "stages must map steps"),
]


@pytest.mark.parametrize(("stages", "message"), WRONG, ids=[str(case[0])[:60] for case in WRONG])
def test_an_impossible_graph_is_refused_and_the_recipe_is_named(stages: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as raised:
        graph_of({"stages": stages}, "params.yaml")
    assert str(raised.value).startswith("params.yaml: stages")


@pytest.mark.parametrize("name", [name for name in GRAPHS if name != "pretraining"])
def test_an_added_system_runs_in_every_graph(name: str) -> None:
    recipe = {"graph": name, "stages": {"distilled_2": NEW | {"system": "distilled_2/retriever"}}}
    steps = graph_of(recipe)
    well_formed(steps)
    assert "distilled_2_run" in {step.name for step in steps}
    content = yaml.safe_load(render(recipe, Path()))
    assert list(content["stages"])[1:] == [stage.name for stage in stages_of(steps)]
    written = {next(iter(out)) for stage in list(content["stages"].values())[1:] for out in stage["outs"]}
    assert written == {f"artifacts/{step.name}" for step in steps}
    read = {dep for stage in content["stages"].values() for dep in stage.get("deps", ()) if "plan" not in dep}
    assert {"/".join(dep.split("/")[:2]) for dep in read} <= written
    settings = configs(recipe, "recipe")
    assert all(step.name in settings for step in steps)


def test_what_a_recipe_adds_joins_what_it_reads_and_a_training_begins_a_stage() -> None:
    stages = {
        "round_2": NEW | {"system": "round_2/retriever"},
        "own_hybrid": {
            "step": "hybrid",
            "corpus": "ingest/corpus",
            "retriever": "fetch_model/encoder",
            "index": "zero_shot_index/index",
            "bm25": "bm25/bm25",
        },
        "more": {"step": "ingest"},
    }
    steps = graph_of({"stages": stages})
    found = {stage.name: [step.name for step in stage.steps] for stage in stages_of(steps)}
    assert [step.name for step in steps] == [name for names in found.values() for name in names]
    assert found["round_2"] == ["round_2", "round_2_index", "round_2_run"]
    assert "own_hybrid" in found["retriever_1"] and "more" in found["corpus"]
    assert list(found).index("distillation") < list(found).index("round_2") < list(found).index("evaluation")


def test_two_stages_never_wait_for_each_other() -> None:
    """`c` belongs to a stage that it reads from another stage after: it begins one of its own."""
    corpus = {"corpus": "ingest/corpus"}
    steps = [
        GraphStep("ingest", "ingest", stage="first"),
        GraphStep("a", "bm25", corpus, stage="one"),
        GraphStep("b", "read-negatives", corpus | {"negatives": "a/negatives"}, stage="two"),
        GraphStep("c", "evaluate", corpus | {"run/b": "b/negatives"}, stage="one"),
    ]
    found = {stage.name: [step.name for step in stage.steps] for stage in stages_of(with_stages(steps))}
    assert found == {"first": ["ingest"], "one": ["a"], "two": ["b"], "c": ["c"]}


def write(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_recipe_file_may_have_sections_for_what_it_adds(tmp_path: Path) -> None:
    new = {key: value for key, value in NEW.items() if key != "settings_of"}
    recipe = {"stages": {"own": new}, "own": {"max_steps": 3}}
    path = write(tmp_path, recipe)
    assert load_recipe(path) == recipe
    assert configs(recipe, "r")["own"].max_steps == 3
    sections = {step.section for step in graph_of(recipe)}
    assert "own" in sections and "stages" not in sections
    assert read_section(known_steps({})["distilled"].spec, path, "own") == {"max_steps": 3}
    for section, message in (("owns", "did you mean 'own'?"), ("stages", "no section 'stages'")):
        with pytest.raises(InputError, match=re.escape(message)):
            read_section(known_steps({})["distilled"].spec, path, section)
    with pytest.raises(InputError, match="unknown section 'owns'; did you mean 'own'"):
        load_recipe(write(tmp_path, recipe | {"owns": {}}))
    with pytest.raises(InputError, match="unknown section 'pretraining'"):
        load_recipe(write(tmp_path, {"graph": "labelled", "pretraining": {"max_steps": 2}}))
    with pytest.raises(InputError, match=r"own: unknown setting 'max_step'"):
        configs(recipe | {"own": {"max_step": 3}}, "r")
    with pytest.raises(InputError, match="both its own section and the settings of distilled"):
        load_recipe(write(tmp_path, {"stages": {"own": NEW}, "own": {}}))


def test_the_documented_re_ranker_starts_from_the_retriever_and_joins_the_teacher() -> None:
    rows = documented_re_ranker()
    labelled = load_recipe(find_recipe("labelled"))
    recipe = labelled | rows
    found = {step.name: step for step in graph_of(recipe)}
    well_formed(tuple(found.values()))
    added = set(found) - {step.name for step in graph_of(labelled)}
    assert added == {"reranker", "reranked_run"}
    assert found["reranker"].inputs["init"] == found["teacher"].inputs["retriever"] == "retriever_2/retriever"
    assert found["teacher"].inputs["reranker"] == "reranker/reranker" and "bm25" in found["teacher"].inputs
    settings = configs(recipe, "recipe")
    assert settings["reranker"].pooling == "cosine" and settings["teacher"].kind == "best"
    assert settings["reranker"].max_length is None and settings["reranker"].patience == 3
    assert found["reranker"].inputs["encoder"] == "fetch_model/encoder", "a pair is as long as this model reads"


@pytest.mark.parametrize("name", ["labelled", "language-model", "micro"])
def test_the_documented_further_round_competes_with_all_others(name: str, tmp_path: Path) -> None:
    further, _ = documented_stages()
    recipe = load_recipe(find_recipe(name))
    recipe["stages"] = recipe.get("stages", {}) | further["stages"]
    steps = graph_of(load_recipe(write(tmp_path, recipe)))
    well_formed(steps)
    found = {step.name: step for step in steps}
    before = {step.name: step for step in graph_of(load_recipe(find_recipe(name)))}
    assert set(found) - set(before) == {"mine_3", "retriever_3", "retriever_3_index", "retriever_3_run"}
    assert set(found["mine_3"].inputs) == set(before["mine_2"].inputs), "a recipe may mix in BM25's negatives"
    assert named(found["best"].inputs, "candidates")["retriever_3"] == "retriever_3/retriever"
    assert named(found["best"].inputs, "indexes")["retriever_3"] == "retriever_3_index/index"
    assert next(iter(named(found["best"].inputs, "candidates"))) == "zero_shot", "the start stays unless it is beaten"
    assert named(found["evaluate"].inputs, "run")["retriever_3"] == "retriever_3_run/run"
    assert named(found["evaluate"].inputs, "curves")["retriever_3"] == "retriever_3/curves"
    settings = configs(recipe, "recipe")
    assert settings["mine_3"] == settings["mine_2"] and settings["retriever_3"] == settings["retriever_2"]
    assert "artifacts/retriever_3_run" in render(recipe, Path())


def test_the_documented_example_is_a_recipe() -> None:
    _, example = documented_stages()
    steps = graph_of(example)
    well_formed(steps)
    assert {"distilled_2", "distilled_2_run"} <= {step.name for step in steps}
