# No `from __future__ import annotations` here: kfp reads the types of the signatures as they stand.
"""Whole runs through kfp's local runner: fan-out over shards and corpora, the gate, the report at the end."""

import builtins
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from pipelines.catalog import RESULTS, Request
from pipelines.compare import CHANNEL_TYPES
from pipelines.control import list_items
from pipelines.interface import PipelineInput, make_pipeline
from pipelines.local import PipelineFailed, find_result, run_local, run_pipeline
from pipelines.tasks import Pods, make_task
from stillhouse.artifacts import digest_files, read_manifest
from stillhouse.config import build, field_types
from stillhouse.graph import find_uses, needed

pytestmark = pytest.mark.slow


BOW = {"pretraining.objective": "bow", "retriever_1.batch_size": 4}


@dsl.component(base_image="python", install_kfp_package=False)
def write_item(number: int, share: float, flag: bool, text: str, common: str, written: dsl.Output[dsl.Dataset]):
    import json
    from pathlib import Path

    Path(written.path).parent.mkdir(parents=True, exist_ok=True)
    content = {"number": number, "share": share, "flag": flag, "text": text, "common": common}
    Path(written.path).write_text(json.dumps(content))


def part_of_a_run(targets: list[str], settings: dict[str, dict[str, Any]], shards: int) -> BaseComponent:
    """The pipeline of some uses of the graph and of what they need."""
    uses = needed(find_uses().values(), targets)

    def body(given: dict[str, Any], pods: Pods) -> None:
        tasks: dict[str, Any] = {}
        for use in uses:
            config: Any = build(use.step.config, settings.get(use.name, {}), use.name)
            values = {field: getattr(config, field) for field in field_types(use.step.config)}
            tasks[use.name] = make_task(use, values, tasks, pods)

    return make_pipeline("part", "A part of a run.", [], None, body, shards)


def outputs_of(workspace: Path) -> Callable[[str], Path]:
    [run] = (workspace / "outputs").iterdir()
    return lambda name: run / name


@pytest.fixture
def settings(tiny_model: Path) -> dict[str, dict[str, Any]]:
    lengths = {"query_length": 16, "passage_length": 16}
    return {
        "fetch_model": {"model": str(tiny_model)} | lengths,
        "ingest": {"max_articles": 5},
        "zero_shot_index": {"cache_gib": 0.0},
        "validate": {},
    }


def test_a_loop_in_an_exit_handler_hands_each_part_of_an_item_to_its_task(tmp_path: Path) -> None:
    """As the loops of `compare-objectives` do: numbers, truth and text, each as its type."""
    items = [
        {"number": 2, "share": 1e-4, "flag": True, "text": "it's one: 100 %"},
        {"number": 2**40, "share": 1.0, "flag": False, "text": ""},
    ]

    def body(given: dict[str, Any], pods: Pods) -> None:
        listed = pods.place(list_items(items=json.dumps(items)), "list-items", "list")
        with dsl.ParallelFor(listed.output, name="items") as item:
            parts = {name: getattr(item, name) for name in items[0]}
            for name, part in parts.items():
                part.channel_type = CHANNEL_TYPES[type(items[0][name])]
            pods.place(write_item(common=given["common"], **parts), "write-item", "write")

    common = PipelineInput("common", str, "to all", "what all tasks are given")
    run_pipeline(make_pipeline("loop", "A loop.", [common], None, body), {}, tmp_path)
    [run] = (tmp_path / "outputs").iterdir()
    found = [json.loads(path.read_text()) for path in run.glob("**/write-item/written")]
    expected = [item | {"common": "to all"} for item in items]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert all(type(item["number"]) is int for item in found)
    assert "loop: succeeded" in (run / "report-end" / "summary").read_text()


def test_objectives_are_compared(tmp_path: Path) -> None:
    """The whole comparison with the recipe `micro`: both loops, the page, the report at the end."""
    sweep = {"variants": [{"name": "none", "pretraining": False}, {"name": "bow", "overrides": BOW}], "seeds": [1, 2]}
    (tmp_path / "trial.yaml").write_text(yaml.safe_dump(sweep))
    request = Request("compare-objectives", "micro", str(tmp_path / "trial.yaml"))
    run_pipeline(request.build(None), {}, tmp_path / "run")
    [run] = (tmp_path / "run" / "outputs").iterdir()
    assert "compare-objectives: succeeded" in (run / "report-end" / "summary").read_text()
    found = find_result(tmp_path / "run" / "outputs", RESULTS["compare-objectives"])
    assert found and (found / "comparison.html").stat().st_size > 0
    variants = json.loads((found / "comparison.json").read_text())["variants"]
    assert set(variants) == {"none", "bow"} and not any(variant.get("failures") for variant in variants.values())
    trained = [read_manifest(path) for path in run.glob("**/pretrain*/encoder")]
    assert sorted(m.config["seed"] for m in trained if m.config["objective"] == "bow") == [1, 2]


def test_shards_are_encoded_apart_and_indexed_together(settings: dict[str, Any], tmp_path: Path) -> None:
    run_pipeline(part_of_a_run(["zero_shot_index"], settings, 3), {}, tmp_path)
    output = outputs_of(tmp_path)
    shards = sorted(path.name for path in output("gather-vectors/vectors").iterdir())
    assert shards == ["shard-0001", "shard-0002", "shard-0003"]
    index = output("index/index")
    assert json.loads((output("index/metrics")).read_text())["encoded"] == 0, "nothing is encoded twice"
    alone = tmp_path / "alone"
    run_pipeline(part_of_a_run(["zero_shot_index"], settings, 1), {}, alone)
    assert (outputs_of(alone)("index/index") / "index.faiss").read_bytes() == (index / "index.faiss").read_bytes()
    assert "part: succeeded" in (output("report-end/summary")).read_text()


def test_shards_are_counted_apart_and_scored_together(settings: dict[str, Any], tmp_path: Path) -> None:
    made = {}
    for shards in (3, 1):
        run_pipeline(part_of_a_run(["importance"], settings, shards), {}, tmp_path / str(shards))
        made[shards] = outputs_of(tmp_path / str(shards))("importance/importance")
    assert digest_files(made[3]) == digest_files(made[1]), "counts, importance and the picture"
    [counted] = (tmp_path / "3").glob("outputs/*/gather-counts/counts")
    for path in counted.glob("ngrams_*.npy"):
        assert path.read_bytes() == (made[1] / path.name).read_bytes()


def test_the_runner_leaves_print_and_logging_as_they_were(tmp_path: Path) -> None:
    logger = logging.getLogger()
    before = builtins.print, logger.level, list(logger.handlers)

    def pipeline() -> None:
        """What tasks in several threads leave behind when they end in another order than they began in."""
        builtins.print = lambda *words: None
        logger.setLevel(logger.level + 1)
        logger.handlers[:] = [logging.NullHandler()]
        raise RuntimeError("a task failed")

    with pytest.raises(PipelineFailed):
        run_pipeline(pipeline, {}, tmp_path)
    assert (builtins.print, logger.level, logger.handlers) == before


def test_a_corpus_that_does_not_pass_stops_at_the_gate(settings: dict[str, Any], tmp_path: Path) -> None:
    settings["validate"] = {"min_passages": 1_000_000}
    run_pipeline(part_of_a_run(["lexical"], settings, 1), {}, tmp_path)
    output = outputs_of(tmp_path)
    page = output("validate/html").read_text()
    assert "the number of passages is 29 and must be at least" in page, "the page is there although the run failed"
    assert not output("lexical").exists() or not list(output("lexical").glob("run/*"))
    assert "part: failed" in (output("report-end/summary")).read_text()


def test_many_corpora_one_of_them_broken(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "qrels").mkdir(parents=True)
        rows = [{"_id": f"p{i}", "title": "", "text": f"the {word} sings"} for i, word in enumerate(("bird", "fish"))]
        queries = [{"_id": f"q{i}", "text": f"which {word}"} for i, word in enumerate(("bird", "fish"))]
        for file, content in (("corpus", rows), ("queries", queries)):
            (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
        (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\tp0\t1\nq1\tp1\t1\n")
    (tmp_path / "two" / "corpus.jsonl").write_text("")
    values = {
        "corpora": json.dumps([str(tmp_path / "one"), str(tmp_path / "two")]),
        "retrievers": json.dumps([f"tiny={tiny_model}"]),
        "measures": "RR@5",
        "depth": 5,
        "query_length": 16,
        "passage_length": 16,
        "bootstrap_samples": 100,
        "randomisation_samples": 100,
    }
    result = run_local(Request("zero-shot"), values, tmp_path / "out")
    metrics = json.loads((result / "metrics.json").read_text())
    assert metrics["corpora"]["one"]["bm25"] == {"RR@5": 1.0} and list(metrics["failed"]) == ["two"]
    assert "two" in (result / "zero_shot.html").read_text()
