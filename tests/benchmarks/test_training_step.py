"""The benchmark of a training step at a size of seconds: both sides have one loss, and the padding that they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_both_sides_train_by_the_same_loss(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_model: Path) -> None:
    pytest.importorskip("datasets", reason="sentence-transformers trains with it")
    pytest.importorskip("accelerate", reason="sentence-transformers trains with it")
    monkeypatch.syspath_prepend(str(FOLDER))
    import training_step

    monkeypatch.setattr(training_step, "LENGTHS", (training_step.Lengths(24, False), training_step.Lengths(24, True)))
    data = tmp_path / "squad-passages"
    (data / "qrels").mkdir(parents=True)
    words = [f"{colour} {thing}" for colour in ("red", "green", "blue") for thing in ("bird", "fish", "tree")]
    texts = [f"the {words[n % 9]} sings" + " and swims in the tree" * (n % 7) for n in range(40)]
    rows = [{"_id": f"p{n}", "title": f"{words[n % 9]}", "text": text} for n, text in enumerate(texts)]
    (data / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    asked = [{"_id": f"q{n}", "text": f"where does the {words[n % 9]} grow"} for n in range(40)]
    (data / "queries.jsonl").write_text("\n".join(map(json.dumps, asked)), encoding="utf-8")
    for split, numbers in {"train": range(30), "dev": range(30, 35), "test": range(35, 40)}.items():
        lines = ["query-id\tcorpus-id\tscore", *(f"q{n}\tp{n}\t1" for n in numbers)]
        (data / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    page = tmp_path / "page.md"
    arguments = ["--data", str(tmp_path), "--model", str(tiny_model), "--batch", "4", "--rounds", "1", "--steps", "2"]
    assert training_step.main([*arguments, "--page", str(page)]) == 0
    table = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert {row[0] for row in cells} == {"natural, cut at 24", "all 24 tokens"}
    for row in cells:
        padding = [float(cell.rstrip(" %")) for cell in row[5:7]]
        assert (padding == [0, 0]) == row[0].startswith("all")
        assert float(row[7]) == pytest.approx(float(row[8]), abs=2e-4) and float(row[7]) > 0
