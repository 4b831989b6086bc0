"""The functions write the same files as the steps with the same settings: whole runs compared by digest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stillhouse
from stillhouse.core.artifacts import digest_files, read_manifest

RunStep = Callable[..., dict[str, Path]]

MODEL = {"pooling": "mean", "query_length": 16, "passage_length": 24}
TRAINING: dict[str, Any] = {
    "max_steps": 2,
    "batch_size": 4,
    "negatives_per_query": 2,
    "negatives_depth": 4,
    "eval_steps": 100,
}
DEPTH = {"negatives_depth": 6}


@pytest.fixture(scope="module")
def by_steps(
    runs_of_steps: Callable[[Path], RunStep],
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Path,
    small_corpus: Path,
) -> dict[str, dict[str, Path]]:
    """Run the steps up to an evaluation, as the commands do, and return the output folders of each."""
    run, corpus = runs_of_steps(tmp_path_factory.mktemp("steps")), {"corpus": small_corpus}
    made = {"model": run("fetch-model", {}, model=str(tiny_model), **MODEL)}
    made["bm25"] = run("bm25", corpus, **DEPTH)
    start, bm25 = made["model"]["encoder"], {"bm25": made["bm25"]["bm25"]}
    made["first"] = run(
        "train-retriever", corpus | {"encoder": start, "negatives": made["bm25"]["negatives"]}, "first", **TRAINING
    )
    dense = corpus | {"retriever": made["first"]["retriever"]}
    made["index"] = run("index", dense)
    dense |= {"index": made["index"]["index"]}
    made["hybrid"] = run("hybrid", dense | bm25)
    made["run"] = run("retrieve", dense | {"hybrid": made["hybrid"]["hybrid"]})
    runs = {"run/bm25": made["bm25"]["run"], "run/first": made["run"]["run"]}
    made["evaluation"] = run(
        "evaluate", corpus | runs | {"curves/first": made["first"]["curves"]}, bootstrap_samples=100
    )
    return made


@pytest.fixture(scope="module")
def by_functions(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, small_corpus: Path
) -> dict[str, stillhouse.StepResult]:
    """Run the same steps by the functions; inputs are results, an opened corpus, and paths as text."""
    root, corpus = tmp_path_factory.mktemp("functions"), stillhouse.Corpus.open(small_corpus)
    made: dict[str, stillhouse.StepResult] = {}
    made["model"] = model = stillhouse.fetch_model(tiny_model, root / "model", **MODEL)
    made["bm25"] = bm25 = stillhouse.bm25(corpus, str(root / "bm25"), **DEPTH)
    made["first"] = first = stillhouse.train_retriever(corpus, model, bm25.negatives, root / "first", **TRAINING)
    made["index"] = index = stillhouse.index(str(small_corpus), str(first.folder), root / "index")
    made["hybrid"] = hybrid = stillhouse.hybrid(corpus, first, index, bm25, root / "hybrid")
    made["run"] = run = stillhouse.retrieve(corpus, first, index, root / "run", hybrid=hybrid)
    runs = {"bm25": bm25.run, "first": run}
    made["evaluation"] = stillhouse.evaluate(
        corpus, runs, root / "evaluation", curves={"first": first.curves}, bootstrap_samples=100
    )
    return made


def test_every_output_is_that_of_the_step(
    by_steps: dict[str, dict[str, Path]], by_functions: dict[str, stillhouse.StepResult]
) -> None:
    assert list(by_steps) == list(by_functions)
    for name, folders in by_steps.items():
        assert by_functions[name].folders.keys() == folders.keys()
        for port, folder in folders.items():
            made = by_functions[name].folders[port]
            assert digest_files(made) == digest_files(folder), f"{name}/{port}"
            assert read_manifest(made).digest == read_manifest(folder).digest, f"{name}/{port}"


def test_a_search_ranks_as_the_run_does(by_functions: dict[str, stillhouse.StepResult], small_corpus: Path) -> None:
    made, corpus = by_functions, stillhouse.Corpus.open(small_corpus)
    searcher = stillhouse.Searcher.open(str(small_corpus), made["first"], made["index"], made["hybrid"])
    run = [line.split() for line in (made["run"].folder / "test.trec").read_text().splitlines()]
    for query in corpus.queries_of("test").itertuples():
        hits = searcher.search(str(query.text), 24)
        ranked = [(passage, float(score)) for id, _, passage, _, score, _ in run if id == query.query_id]
        assert {hit.passage_id for hit in hits} == {passage for passage, _ in ranked}
        scores = dict(ranked)
        for hit in hits:
            assert hit.score == pytest.approx(scores[hit.passage_id], abs=2e-3)  # on some processors the run uses bf16


def test_the_figures_are_those_of_the_report(by_functions: dict[str, stillhouse.StepResult]) -> None:
    evaluation = by_functions["evaluation"]
    assert isinstance(evaluation, stillhouse.Evaluation)
    assert {f"{s}/{m}": v for s, means in evaluation.figures.items() for m, v in means.items()} == evaluation.metrics
    assert evaluation.report.read_text().startswith("<!doctype html>")
    assert repr(evaluation) == f"{evaluation.folder}: {evaluation.summary}"


def test_a_wrong_setting_is_reported_with_the_nearest_name(tmp_path: Path, small_corpus: Path) -> None:
    with pytest.raises(stillhouse.InputError, match=r"^bm25\(\): unknown setting 'negative_depth'; did you mean 'neg"):
        stillhouse.bm25(small_corpus, tmp_path / "bm25", negative_depth=3)
    with pytest.raises(stillhouse.InputError, match=r"^bm25\(\)\.depth must be at least 1, not 0$") as refused:
        stillhouse.bm25(small_corpus, tmp_path / "bm25", depth=0)
    assert refused.value._render_traceback_() == ["InputError: bm25().depth must be at least 1, not 0"]
    assert not list(tmp_path.iterdir())


def test_artifacts_of_another_corpus_are_refused(
    by_functions: dict[str, stillhouse.StepResult], tmp_path: Path
) -> None:
    other = stillhouse.ingest_passages(["the red bird", "the blue fish"], tmp_path / "other", queries="source")
    with pytest.raises(stillhouse.InputError, match="made from another corpus"):
        stillhouse.retrieve(other, by_functions["first"], by_functions["index"], tmp_path / "run")
    with pytest.raises(stillhouse.InputError, match="made from another corpus"):
        stillhouse.Searcher.open(other, by_functions["first"], by_functions["index"])
