"""This project's side of `sentence_transformers_recipe.py`: its steps, one after the other."""

from __future__ import annotations

from pathlib import Path

from recipe_run import SYSTEMS, TEMPERATURE, Run


def make_ours(run: Run) -> None:
    """The two systems of this project."""
    corpus = {"corpus": run.corpus}
    among = {"negatives_depth": 30, "negatives_among": "answers"}
    bm25 = run.step("bm25", "bm25", corpus, ("negatives", "run", "bm25"), **among) / "negatives"
    first = train(run, "retriever 1", run.start, bm25, 1)
    near = mine(run, "mine 1", "retriever 1", first, 30)
    train(run, SYSTEMS[0], first, near, 2)
    second = train(run, "retriever 2", first, near, 1)
    deep = mine(run, "mine 2", "retriever 2", second, 200)
    budget = run.budget
    inputs = corpus | {"negatives": deep, "init": run.start}
    reranker = run.step(
        "re-ranker",
        "train-reranker",
        inputs,
        ("reranker", "curves"),
        max_steps=budget.reranker_steps,
        batch_size=8,
        epochs=1000,
        negatives_per_query=3,
        negatives_depth=200,
        max_length=2 * budget.length,
        learning_rate=2 * budget.learning_rate,
        warmup_ratio=0.2,
        metric_for_best_model="loss",
        seed=budget.seed,
    )
    inputs = corpus | {"negatives": deep, "reranker": reranker / "reranker"}
    teacher = run.step("teacher", "score-pairs", inputs, ("teacher",), depth=6, dev_negatives_scored=6) / "teacher"
    train(run, SYSTEMS[1], second, deep, 1, teacher=teacher, negatives_depth=6)


def train(
    run: Run,
    name: str,
    encoder: Path,
    negatives: Path,
    stages: int,
    teacher: Path | None = None,
    contrastive: str = "simlm",
    negatives_depth: int = 30,
) -> Path:
    inputs = {"corpus": run.corpus, "encoder": encoder, "negatives": negatives}
    inputs |= {"teacher": teacher} if teacher else {}
    return (
        run.step(
            name,
            "train-retriever",
            inputs,
            ("retriever", "curves"),
            max_steps=stages * run.budget.steps,
            batch_size=run.budget.batch,
            epochs=1000,
            learning_rate=run.budget.learning_rate,
            temperature=TEMPERATURE,
            negatives_per_query=1,
            negatives_depth=negatives_depth,
            alpha=1.0,
            contrastive=contrastive,
            eval_steps=max(1, run.budget.steps // 4),
            seed=run.budget.seed,
        )
        / "retriever"
    )


def mine(run: Run, name: str, system: str, retriever: Path, depth: int, margin: str = "none") -> Path:
    inputs = {"corpus": run.corpus, "retriever": retriever, "index": run.indexed(system, retriever)}
    settings = {"negatives_depth": depth, "negatives_among": "answers", "margin": margin}
    return run.step(name, "mine", inputs, ("negatives",), **settings) / "negatives"
