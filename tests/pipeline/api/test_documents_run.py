"""A whole run on long documents: split, judged by document, trained, chosen, measured and searched."""

from __future__ import annotations

import json
from pathlib import Path

import ir_measures
import pytest
from beir_source import write_beir
from start_model import make_start_model

from stillhouse.cli import main
from stillhouse.core.artifacts import read_manifest
from stillhouse.corpus.sources.options import sample_folder
from stillhouse.corpus.store import Corpus


def written(folder: Path) -> Path:
    """Six articles of the sample, each as one text with three questions about its headings."""
    passages, queries, qrels = [], {}, {split: [] for split in ("train", "dev", "test")}
    for path in sorted((sample_folder() / "articles").glob("*.md"))[:6]:
        text = path.read_text(encoding="utf-8")
        passages.append({"_id": path.stem, "title": path.stem, "text": text})
        for split, head in zip(qrels, text.split("## ")[1:]):
            queries[f"{path.stem}-{split}"] = f"what about {head.splitlines()[0]} of {path.stem}"
            qrels[split].append((f"{path.stem}-{split}", path.stem))
    return write_beir(folder, passages, queries, **qrels)


@pytest.mark.slow
def test_a_run_on_documents_is_measured_by_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, folder = written(tmp_path / "source"), tmp_path / "ran"
    make_start_model(tmp_path / "model")
    own = [f"fetch_model.model={tmp_path / 'model'}", "ingest.split_tokens=48", "ingest.split_by=heading"]
    command = ["run", "--recipe", "micro", "--source", str(source), "--folder", str(folder), "--quiet"]
    assert main([*command, *(f"--set={change}" for change in own)]) == 0
    made = folder / "artifacts"
    corpus = Corpus.open(made / "ingest" / "corpus")
    assert read_manifest(corpus.folder).inputs.keys() == {"tokenizer"} and corpus.facts["documents"] == 6
    assert corpus.passage_count > 30 and len(corpus.qrels) == 18 and corpus.passages["section"].nunique() > 6
    evaluation = made / "evaluate" / "evaluation"
    found = json.loads((evaluation / "metrics.json").read_text())["best"]["nDCG@10"]
    run: dict[str, dict[str, float]] = {}
    for line in (made / "best_run" / "run" / "test.trec").read_text().splitlines():
        query, _, passage, rank, *_ = line.split()
        run.setdefault(query, {}).setdefault(passage.partition("#")[0], -float(rank))
    qrels = {query: {query.removesuffix("-test"): 1} for query in corpus.queries_of("test")["query_id"]}
    assert found == pytest.approx(
        ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)[ir_measures.nDCG @ 10]
    )
    assert (evaluation / "metrics_passages.json").is_file()
    folders = {name: made / "best" / name for name in ("retriever", "index", "hybrid")} | {"corpus": corpus.folder}
    flags = [word for name, path in folders.items() for word in (f"--{name}", str(path))]
    capsys.readouterr()
    assert main(["search", "--json", "--top", "6", *flags, "bats"]) == 0
    hits = json.loads(capsys.readouterr().out)["hits"]
    assert len({hit["document_id"] for hit in hits}) == len(hits) > 3
