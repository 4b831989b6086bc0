"""The mining benchmark: our side gives the same result as the step, and a part of a source is complete."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize("margin", ["none", "relative"])
def test_the_timed_work_equals_the_step(
    run_step: Callable[..., dict[str, Path]],
    small_corpus: Path,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    margin: str,
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import mining as benchmark

    from stillhouse.context import Context
    from stillhouse.corpus.store import Corpus
    from stillhouse.retrieval.mining.negatives import training_queries
    from stillhouse.retrieval.models.encoder import BiEncoder, encode
    from stillhouse.retrieval.settings import InferenceConfig

    retriever = run_step("fetch-model", {}, model=str(tiny_model), query_length=16, passage_length=24)["encoder"]
    inputs = {"corpus": small_corpus, "retriever": retriever}
    index = run_step("index", inputs, precision="fp32")["index"]
    folder = tmp_path / "bench"
    folder.mkdir()
    (folder / "corpus").symlink_to(small_corpus)
    (folder / "index").symlink_to(index)
    encoder = BiEncoder.load(retriever)
    texts = encoder.queries(list(training_queries(Corpus.open(small_corpus))["text"]))
    config = InferenceConfig(precision="fp32")
    np.save(folder / "queries.npy", encode(encoder, texts, Context(tmp_path, "cpu", quiet=True), "queries", config))
    mine, rows = benchmark.ours(folder, 5, margin)
    assert mine() == folder / "negatives"
    made = run_step("mine", inputs | {"index": index}, negatives_depth=5, margin=margin, precision="fp32")["negatives"]
    assert rows()["rows"].tolist() == np.load(made / "rows.npy").tolist()


def test_a_part_of_a_source_has_the_queries_of_its_passages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import mining as benchmark

    source = tmp_path / "source"
    (source / "qrels").mkdir(parents=True)
    with gzip.open(source / "corpus.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"_id": f"p{n}", "text": "text"}) + "\n" for n in range(4))
    (source / "queries.jsonl").write_text("".join(json.dumps({"_id": f"q{n}", "text": "?"}) + "\n" for n in range(3)))
    (source / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq0\tp3\t1\nq1\tp1\t1\nq2\tp0\t1\n")
    assert benchmark.first(source, tmp_path / "part", 0) == source
    part = benchmark.first(source, tmp_path / "part", 2)
    assert [json.loads(line)["_id"] for line in (part / "corpus.jsonl").read_text().splitlines()] == ["p0", "p1"]
    assert [json.loads(line)["_id"] for line in (part / "queries.jsonl").read_text().splitlines()] == ["q1", "q2"]
    assert (part / "qrels" / "train.tsv").read_text().splitlines()[1:] == ["q1\tp1\t1", "q2\tp0\t1"]
