"""A recipe's `stages` leave out, change and add stages; the tests check the resulting graph."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented_stages import documented_re_ranker, documented_stages
from hypothesis import given
from hypothesis import strategies as st

from stillhouse.errors import InputError
from stillhouse.experiments.comparison.plan import make_plan
from stillhouse.experiments.comparison.sweeps import sweep_of_flags
from stillhouse.kubernetes.pods.run_parameters import TRAIN, train_parameters
from stillhouse.steps.spec import named
from stillhouse.workflow.dvc_file import render
from stillhouse.workflow.graph import USES, Use, find_uses, graph_of
from stillhouse.workflow.recipes import configs, find_recipe, load_recipe, sections
from stillhouse.workflow.step_command import read_section

NEW = {
    "step": "train-retriever",
    "settings_of": "distilled",
    "corpus": "ingest/corpus",
    "encoder": "distilled/retriever",
    "negatives": "mine_2/negatives",
}
NAMES = [use.name for use in USES]


def graph(**stages: Any) -> dict[str, Use]:
    return {use.name: use for use in graph_of({"stages": stages})}


def well_formed(uses: tuple[Use, ...]) -> None:
    """Check that every use gets what it needs, of the right kind, from an earlier use."""
    earlier: dict[str, str] = {}
    for use in uses:
        for key, source in use.inputs.items():
            assert earlier.get(source) == use.step.port_of(key).kind, (use.name, key, source)
        assert all(port.optional or port.keys(use.inputs) for port in use.step.inputs), use.name
        earlier |= {f"{use.name}/{port.name}": port.kind for port in use.step.outputs}


def test_without_stages_the_graph_is_the_papers() -> None:
    assert graph_of({}) == graph_of({"stages": {}}) == graph_of({"ingest": {}, "stages": None}) == USES


def test_without_pre_training_its_readers_read_the_start() -> None:
    found = graph(pretraining="none")
    for name in ("retriever_1", "retriever_2", "distilled"):
        assert found[name].inputs["encoder"] == "fetch_model/encoder"
    gone = {"pretraining", "lm_head", "importance", "tokenize", "fetch_generator"}
    assert set(NAMES) - set(found) == gone, "nothing else has a use for these"
    assert found["evaluate"].inputs == {
        key: source for key, source in find_uses()["evaluate"].inputs.items() if source.split("/")[0] not in gone
    }
    assert graph(lm_head="none")["pretraining"].inputs["init"] == "fetch_model/encoder"


def test_stages_that_depend_on_a_removed_stage_are_removed() -> None:
    found = graph(reranker="none")
    assert set(NAMES) - set(found) == {"reranker", "teacher", "reranked_run", "fetch_reranker"}
    assert "teacher" not in found["distilled"].inputs, "it can do without"
    assert list(named(found["evaluate"].inputs, "run"))[-3:] == ["retriever_2", "distilled", "best"]
    found = graph(retriever_2="none")
    gone = {"retriever_2", "retriever_2_index", "retriever_2_run", "mine_2", "reranker", "teacher", "distilled"}
    gone |= {"distilled_index", "distilled_run", "reranked_run", "mine_1", "fetch_reranker"}
    assert set(NAMES) - set(found) == gone


def test_a_stage_that_the_recipe_names_stays_though_nothing_reads_it() -> None:
    found = graph(pretraining="none", tokenize={"tokenizer": "fetch_model/encoder"})
    assert "tokenize" in found and "importance" not in found


def test_without_an_evaluation_everything_else_is_run() -> None:
    assert list(graph(evaluate="none")) == NAMES[:-1]


def test_inputs_can_be_replaced_or_removed_and_uses_are_reordered() -> None:
    found = graph(
        retriever_1={"encoder": "retriever_1_unpretrained/retriever"},
        retriever_1_unpretrained={"settings_of": "retriever_2"},
        mine_1={"others": "none"},
        bm25={"validation": "none"},
    )
    assert found["retriever_1"].inputs["encoder"] == "retriever_1_unpretrained/retriever"
    assert found["retriever_1_unpretrained"].section == "retriever_2"
    assert "others" not in found["mine_1"].inputs and "others" in found["mine_2"].inputs
    found = graph(retriever_1_unpretrained={"encoder": "distilled/retriever"})
    assert list(found).index("retriever_1_unpretrained") > list(found).index("distilled")
    well_formed(tuple(found.values()))


def test_a_new_system_is_one_row() -> None:
    found = graph(distilled_2=NEW | {"system": "distilled_2/retriever"})
    like = find_uses()
    for part in ("index", "run"):
        made, known = found[f"distilled_2_{part}"], like[f"distilled_{part}"]
        expected = {key: source.replace("distilled", "distilled_2") for key, source in known.inputs.items()}
        assert (made.inputs, made.step_name, made.section) == (expected, known.step_name, known.name)
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


def test_existing_models_and_runs_may_be_systems_too() -> None:
    rerank = {"step": "rerank", "corpus": "ingest/corpus", "reranker": "reranker/reranker"}
    found = graph(
        head={"system": "lm_head/encoder"},
        deeper_run=rerank | {"candidates": "distilled_run/run", "system": "deeper_run/run"},
    )
    assert found["head_index"].inputs["retriever"] == "lm_head/encoder" and "head" not in found
    runs = named(found["evaluate"].inputs, "run")
    assert (runs["head"], runs["deeper"]) == ("head_run/run", "deeper_run/run")


def test_the_evaluation_reads_what_the_recipe_says_by_its_names() -> None:
    inputs = graph(evaluate={"run/my-own": "bm25/run", "run/bm25": "none"})["evaluate"].inputs
    before = find_uses()["evaluate"].inputs
    assert list(named(inputs, "run")) == [*list(named(before, "run"))[1:], "my-own"]
    assert list(inputs)[-1] == "curves/distilled", "grouped by ports, as a command is read"


def test_a_section_of_its_own_goes_before_that_of_another() -> None:
    stages = {"distilled_2": NEW | {"system": "distilled_2/retriever"}}
    found = {use.name: use for use in graph_of({"stages": stages, "distilled_2_run": {"depth": 7}})}
    assert (
        found["distilled_2_run"].section == "distilled_2_run"
        and found["distilled_2_index"].section == "distilled_index"
    )


SYSTEM = {"system": "new/retriever"}
WRONG = [
    ({"lm_heads": "none"}, "stages.lm_heads: there is no such stage to leave out; did you mean 'lm_head'?"),
    (
        {"retriver_2": {"encoder": "x/y"}},
        "there is no such stage, and a new one needs `step`; did you mean 'retriever_2'?",
    ),
    ({"lm_head": None}, "stages.lm_head: write `none`"),
    ({"lm_head": "off"}, "stages.lm_head: write `none`"),
    ({"retriever_2": {"encodr": "fetch_model/encoder"}}, "no input 'encodr'; did you mean 'encoder'?"),
    ({"retriever_2": {"encoder": "retriever_1/retrever"}}, "did you mean 'retriever_1/retriever'?"),
    ({"retriever_2": {"encoder": "bm25/run"}}, "encoder cannot be 'bm25/run'"),
    ({"retriever_2": {"encoder": 3}}, "encoder must be `use/output` or `none`, not 3"),
    ({"retriever_2": {"negatives": "none"}}, "stages.retriever_2: it needs `negatives`"),
    ({"retriever_2": {"step": "mine"}}, "`step` is for new stages"),
    ({"retriever_2": {"settings_of": "mine_1"}}, "not another train-retriever"),
    ({"evaluate": {"run": "bm25/run"}}, "evaluate has no input 'run'; did you mean 'run/NAME'?"),
    ({"evaluate": {"run/a b": "bm25/run"}}, "evaluate has no input 'run/a b'"),
    ({"evaluate": {"run/a": "ingest/encoder"}}, "run/a cannot be 'ingest/encoder'"),
    ({"mine_1": "none", "retriever_2": {"negatives": "mine_1/negatives"}}, "mine_1/negatives, which is left out"),
    ({"retriever_1": "none", "mine_1": {"others": "none"}}, "stages.mine_1: its retriever is retriever_1/retriever"),
    ({"new": {"step": "train-retriver"}}, "there is no step 'train-retriver'; did you mean 'train-retriever'?"),
    ({"new": {"step": "validate"}}, "stages.new: it needs `corpus`"),
    ({"New one": {"step": "validate", "corpus": "ingest/corpus"}}, "lowercase letters"),
    ({"stages": {"step": "validate", "corpus": "ingest/corpus"}}, "unused name"),
    ({"new": {"system": "bm25/negatives"}}, "system cannot be 'bm25/negatives'"),
    ({"new": SYSTEM}, "system cannot be 'new/retriever'"),
    ({"distilled_2": NEW, "distilled": {"encoder": "distilled_2/retriever"}}, "form a cycle"),
    ({"retriever_1": {"encoder": "retriever_1/retriever"}}, "retriever_1 ← retriever_1 form a cycle"),
    ({"distilled_run": "none", "a": {"system": "distilled_run/run"}}, "run/a is distilled_run/run, which is left out"),
    ({"ingest": "none"}, "leave nothing to run"),
    (["lm_head"], "stages must map stages"),
]


@pytest.mark.parametrize(("stages", "message"), WRONG, ids=[str(case[0])[:60] for case in WRONG])
def test_an_impossible_graph_is_refused_and_the_recipe_is_named(stages: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as raised:
        graph_of({"stages": stages}, "params.yaml")
    assert str(raised.value).startswith("params.yaml: stages")


@given(st.sets(st.sampled_from(NAMES[:-1]), max_size=6), st.booleans())
def test_any_choice_of_left_out_stages_leaves_a_runnable_graph(names: set[str], added: bool) -> None:
    """Or an error says what is missing, if the recipe itself asks for a stage that needs it."""
    recipe = load_recipe(find_recipe("micro"))
    stages: dict[str, Any] = dict.fromkeys(sorted(names), "none")
    if added:
        stages["distilled_2"] = NEW | {"system": "distilled_2/retriever"}
    recipe["stages"] = stages
    try:
        uses = graph_of(recipe)
    except InputError as error:
        assert added or "leave nothing to run" in str(error)
        return
    well_formed(uses)
    left = {use.name for use in uses}
    assert not names & left and ("distilled_2_run" in left) == added
    assert [use.name for use in uses if use.name in NAMES] == [name for name in NAMES if name in left]
    content = yaml.safe_load(render(recipe, Path()))
    assert list(content["stages"])[1:] == [use.name for use in uses]
    written = {out for stage in content["stages"].values() for out in stage["outs"]}
    read = {dep for stage in content["stages"].values() for dep in stage.get("deps", ()) if "/" in dep}
    assert read <= written
    settings = configs(recipe, "recipe")
    assert all(use.name in settings for use in uses)
    for name, parameter in train_parameters(uses).items():
        assert set(parameter.uses) <= left and parameter.kind is TRAIN[name].kind


def test_run_parameters_apply_to_the_stages_present() -> None:
    assert {name: parameter.fills for name, parameter in train_parameters(USES).items()} == {
        name: parameter.fills for name, parameter in TRAIN.items()
    }
    found = train_parameters(tuple(graph(evaluate="none", distilled_2=NEW).values()))
    assert set(found) == set(TRAIN)
    assert found["learning_rate"].uses[0] == "retriever_1" and "distilled_2" in found["learning_rate"].uses


def write(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_recipe_file_may_have_sections_for_what_it_adds_and_for_what_it_leaves_out(tmp_path: Path) -> None:
    new = {key: value for key, value in NEW.items() if key != "settings_of"}
    recipe = {"stages": {"pretraining": "none", "own": new}, "own": {"max_steps": 3}, "pretraining": {"max_steps": 2}}
    path = write(tmp_path, recipe)
    assert load_recipe(path) == recipe
    assert configs(recipe, "r")["own"].max_steps == 3
    assert "own" in sections(recipe) and "pretraining" not in sections(recipe) and "stages" not in sections(recipe)
    assert read_section(find_uses()["distilled"].step, path, "own") == {"max_steps": 3}
    for section, message in (("owns", "did you mean 'own'?"), ("stages", "no section 'stages'")):
        with pytest.raises(InputError, match=re.escape(message)):
            read_section(find_uses()["distilled"].step, path, section)
    with pytest.raises(InputError, match="unknown section 'owns'; did you mean 'own'"):
        load_recipe(write(tmp_path, recipe | {"owns": {}}))
    with pytest.raises(InputError, match=r"own: unknown setting 'max_step'"):
        configs(recipe | {"own": {"max_step": 3}}, "r")
    with pytest.raises(InputError, match="both its own section and the settings of distilled"):
        load_recipe(write(tmp_path, {"stages": {"own": NEW}, "own": {}}))


def test_a_comparison_is_of_the_recipes_graph() -> None:
    recipe: dict[str, Any] = {"stages": {"importance": "none", "own": NEW | {"system": "own/retriever"}}}
    sweep = sweep_of_flags("none,bow", [], "o")
    plan = make_plan(sweep, recipe, "recipe")
    assert all("importance" not in {use.name for use in job.uses} for job in plan.jobs)
    [job, *_] = make_plan(dataclasses.replace(sweep, retriever="own"), recipe, "recipe").jobs
    evaluation = job.uses[-1]
    assert evaluation.inputs["run/own"] == "own_run/run" and evaluation.inputs["curves/own"] == "own/curves"
    assert job.configs["own"].seed == job.seed and "distilled" in {use.name for use in job.uses}
    with pytest.raises(InputError, match="leaves out pretraining"):
        make_plan(sweep, {"stages": {"pretraining": "none"}}, "recipe")


def test_the_documented_re_ranker_starts_from_the_retriever_and_joins_the_teacher() -> None:
    rows = documented_re_ranker()
    labelled = load_recipe(find_recipe("labelled"))
    recipe = labelled | rows | {"stages": labelled["stages"] | rows["stages"]}
    found = {use.name: use for use in graph_of(recipe)}
    well_formed(tuple(found.values()))
    added = set(found) - {use.name for use in graph_of(labelled)}
    assert added == {"reranker", "reranked_run"}
    assert found["reranker"].inputs["init"] == found["teacher"].inputs["retriever"] == "retriever_2/retriever"
    assert found["teacher"].inputs["reranker"] == "reranker/reranker" and "bm25" in found["teacher"].inputs
    settings = configs(recipe, "recipe")
    assert settings["reranker"].pooling == "cosine" and settings["teacher"].kind == "best"
    assert settings["reranker"].max_length is None and settings["reranker"].patience == 3
    assert found["reranker"].inputs["encoder"] == "fetch_model/encoder", "a pair is as long as this model reads"
    recipe["stages"]["reranked_run"] = "none"
    assert set(found) - {use.name for use in graph_of(recipe)} == {"reranked_run"}


@pytest.mark.parametrize("name", ["labelled", "language-model", "micro"])
def test_the_documented_further_round_competes_with_all_others(name: str, tmp_path: Path) -> None:
    further, _ = documented_stages()
    recipe = load_recipe(find_recipe(name))
    recipe["stages"] = recipe.get("stages", {}) | further["stages"]
    uses = graph_of(load_recipe(write(tmp_path, recipe)))
    well_formed(uses)
    found = {use.name: use for use in uses}
    before = {use.name: use for use in graph_of(load_recipe(find_recipe(name)))}
    assert set(found) - set(before) == {"mine_3", "retriever_3", "retriever_3_index", "retriever_3_run"}
    assert set(found["mine_3"].inputs) == set(before["mine_2"].inputs), "a recipe may mix in BM25's negatives"
    assert named(found["best"].inputs, "candidates")["retriever_3"] == "retriever_3/retriever"
    assert named(found["best"].inputs, "indexes")["retriever_3"] == "retriever_3_index/index"
    assert next(iter(named(found["best"].inputs, "candidates"))) == "zero_shot", "the start stays unless it is beaten"
    assert named(found["evaluate"].inputs, "run")["retriever_3"] == "retriever_3_run/run"
    assert named(found["evaluate"].inputs, "curves")["retriever_3"] == "retriever_3/curves"
    settings = configs(recipe, "recipe")
    assert settings["mine_3"] == settings["mine_2"] and settings["retriever_3"] == settings["retriever_2"]
    assert "retriever_3_run" in yaml.safe_load(render(recipe, Path()))["stages"]


def test_the_student_of_the_papers_teacher_is_left_out_with_its_retriever() -> None:
    own = {"retriever": "retriever_1/retriever", "index": "retriever_1_index/index"}
    found = graph(retriever_2="none", mine_2=own)
    assert not {"retriever", "index"} & set(found["teacher"].inputs)
    well_formed(tuple(found.values()))


def test_the_documented_example_is_a_recipe() -> None:
    _, example = documented_stages()
    uses = graph_of(example)
    well_formed(uses)
    assert {"distilled_2", "distilled_2_run"} <= {use.name for use in uses} and "lm_head" not in {
        use.name for use in uses
    }
