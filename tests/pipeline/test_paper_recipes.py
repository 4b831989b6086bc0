"""The papers' recipes: the published hyper-parameters, and every stage of each on the built-in sample."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillhouse.cli import main
from stillhouse.pipeline.graph import known_steps
from stillhouse.pipeline.recipes import SHIPPED, configs, load_recipe
from stillhouse.pipeline.steps.spec import named
from stillhouse.training.batches import steps_for

NAMES = sorted(path.stem for path in SHIPPED.glob("*-*.yaml") if path.stem != "language-model")

PUBLISHED: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("published_recipes.yaml").read_text(encoding="utf-8")
)


def test_every_recipe_of_a_paper_is_checked_here() -> None:
    assert sorted(PUBLISHED) == NAMES


@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED.glob("*.yaml")))
def test_the_papers_choose_a_re_ranker_by_its_loss_and_take_its_raw_scores(name: str) -> None:
    recipe = load_recipe(SHIPPED / f"{name}.yaml")
    if "reranker" not in recipe:
        pytest.skip("it trains no re-ranker, or stops at pre-training")
    found = configs(recipe, name)
    assert found["reranker"].metric_for_best_model == "loss"
    assert found["teacher"].kind == "cross-encoder" and found["distilled"].weak_teacher == "distil"


@pytest.mark.parametrize("name", NAMES)
def test_the_published_hyper_parameters(name: str) -> None:
    path = SHIPPED / f"{name}.yaml"
    found = configs(load_recipe(path), str(path))
    for step, values in PUBLISHED[name].items():
        assert {field: getattr(found[step], field) for field in values} == values, step


STEPS = {
    # Passages of MS MARCO and of DPR's Wikipedia, DPR's train questions of NQ, and 1 % of SQuAD's 87,599 as in Chang
    # et al.
    ("simlm-msmarco", "pretraining", 8_841_823): 80_000,
    ("simlm-nq", "pretraining", 21_015_324): 200_000,
    ("simlm-nq", "retriever_2", 58_880): 20_000,
    ("chang-wikipedia", "pretraining", 3_000_000): 100_000,
    ("chang-reqa-squad", "retriever_1", 876): 2_000,
    ("simlm-msmarco", "retriever_1", 502_939): round(3 * 502_939 / 64),
    ("simlm-msmarco", "distilled", 502_939): round(6 * 502_939 / 64),
}
"""(recipe, training, its examples) → the steps that the paper takes."""


@pytest.mark.parametrize(("name", "step", "examples"), STEPS)
def test_a_training_takes_the_steps_of_its_paper(name: str, step: str, examples: int) -> None:
    """The setting `max_steps` alone is not enough, because the epochs might end sooner."""
    config = configs(load_recipe(SHIPPED / f"{name}.yaml"), name)[step]
    taken = steps_for(examples, config.batch_size, config.epochs, config.max_steps)
    assert taken == STEPS[name, step, examples]


@pytest.mark.parametrize("name", ["simlm-msmarco", "bow-msmarco", "cdmae-msmarco"])
def test_a_teacher_scores_what_its_training_reads(name: str) -> None:
    found = configs(load_recipe(SHIPPED / f"{name}.yaml"), name)
    teacher, training = found["teacher"], found["distilled"]
    assert teacher.negatives_scored == training.epochs * training.negatives_per_query <= teacher.depth
    assert teacher.seed == training.seed and teacher.depth == training.negatives_depth
    # All mined negatives of the dev queries compare the teacher with its student; training reads the first of these.
    assert teacher.dev_negatives_scored is None and found["mine_2"].negatives_depth >= training.negatives_per_query


def test_pre_training_on_ms_marco_covers_the_published_epochs() -> None:
    """SimLM calls its 80k steps "roughly 20 epochs" of the corpus. CDMAE stops at 80k steps, within its 20 epochs."""
    simlm, cdmae = (
        configs(load_recipe(SHIPPED / f"{name}.yaml"), name)["pretraining"]
        for name in ("simlm-msmarco", "cdmae-msmarco")
    )
    passages = 8_841_823
    taken = steps_for(passages, simlm.batch_size, simlm.epochs, simlm.max_steps)
    assert taken * simlm.batch_size / passages == pytest.approx(20, rel=0.1)
    schedule = steps_for(passages, cdmae.batch_size, cdmae.epochs, cdmae.max_steps)
    assert schedule * cdmae.batch_size / passages == pytest.approx(20, rel=0.001)
    assert 0.9 * schedule < cdmae.last_step < schedule


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-nq")])
def test_the_recipe_measures_answer_recall_on_the_files_of_dpr(name: str, tmp_path: Path) -> None:
    """The small twin runs on the sample, which has qrels, whereas these files only have answers."""
    source = tmp_path / "nq"
    source.mkdir()
    things = ["lion", "whale", "heron", "cedar", "moss", "trout"]
    passages = [f"{number}\tthe {thing} lives in place{number}\t{thing}" for number, thing in enumerate(things, 1)]
    (source / "psgs_w100.tsv").write_text("\n".join(["id\ttext\ttitle", *passages]) + "\n")
    for split, numbers in (("train", (1, 2)), ("dev", (3, 4))):
        rows = [
            {
                "question": f"where lives the {things[number - 1]}",
                "answers": [f"place{number}"],
                "positive_ctxs": [{"passage_id": str(number)}],
            }
            for number in numbers
        ]
        (source / f"biencoder-nq-{split}.json").write_text(json.dumps(rows))
    (source / "nq-test.qa.csv").write_text("where lives the moss\t['place5']\nwhere lives the trout\t['place6']\n")

    def step(of: str, *folders: str) -> int:
        return main([of, "--params", f"{SHIPPED / name}.yaml:{of}", "--quiet", *folders])

    corpus, run, bm25, out = (str(tmp_path / folder) for folder in ("corpus", "run", "bm25", "evaluation"))
    assert step("ingest", "--source", str(source), "--corpus", corpus) == 0
    negatives = str(tmp_path / "negatives")
    assert step("bm25", "--corpus", corpus, "--run", run, "--negatives", negatives, "--bm25", bm25) == 0
    assert step("evaluate", "--corpus", corpus, "--run", f"bm25={run}", "--evaluation", out) == 0
    found = json.loads((tmp_path / "evaluation" / "metrics.json").read_text())["bm25"]
    assert found and set(found.values()) == {1.0}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_small_twin_runs_every_stage(name: str, tmp_path: Path) -> None:
    assert main(["run", "--recipe", name, "--small", "--quiet", "--folder", str(tmp_path)]) == 0
    metrics = json.loads((tmp_path / "artifacts" / "evaluate" / "evaluation" / "metrics.json").read_text())
    assert set(metrics) == set(named(known_steps({})["evaluate"].inputs, "run"))
    assert all(0 <= value <= 1 for values in metrics.values() for value in values.values())
