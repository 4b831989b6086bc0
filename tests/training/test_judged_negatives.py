"""Passages that a source judges wrong become the first negatives of their question."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from stillhouse.corpus.store import Corpus
from stillhouse.training.negatives import Negatives

Run = Callable[..., dict[str, Path]]
TEXTS = [f"river {n} flows to town {n} past the hills of {name}" for n, name in enumerate("abcdefghij")]


def test_negatives_of_a_training_file_come_before_mined_ones(run_step: Run, tiny_model: Path, tmp_path: Path) -> None:
    """In the order of the file, without the right passage, and no deeper than the step's setting."""
    wrong = {0: [7, 3], 1: [9], 2: [], 3: [5, 6, 8, 1, 2]}
    rows = [
        {"query": f"which town has river {n}", "pos": [TEXTS[n]], "neg": [TEXTS[row] for row in given]}
        for n, given in wrong.items()
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = run_step("ingest", {}, source=str(tmp_path / "train.jsonl"), dev_fraction=0.3)["corpus"]
    corpus = Corpus.open(folder)
    model = {"model": str(tiny_model), "pooling": "mean", "query_length": 16, "passage_length": 24}
    encoder = run_step("fetch-model", {}, **model)["encoder"]
    index = run_step("index", {"corpus": folder, "retriever": encoder})["index"]
    inputs = {"corpus": folder, "retriever": encoder, "index": index}
    for made in (
        run_step("bm25", {"corpus": folder}, negatives_depth=4)["negatives"],
        run_step("mine", inputs, negatives_depth=3, random_negatives=1)["negatives"],
    ):
        negatives = Negatives.read(made)
        texts = corpus.passages["text"]
        for query, row in zip(negatives.texts(corpus)["text"], negatives.rows_QD):
            number = int(query[-1])
            found = [TEXTS.index(texts[place]) for place in row if place >= 0]
            assert found[: len(wrong[number])] == wrong[number][:4] and len(found) == 4
            assert number not in found and len(set(found)) == 4
