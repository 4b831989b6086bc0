"""The quality benchmark: cells of a corpus have the same test questions, and the page shows hand-made figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    import quality_cells

    return quality_cells


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A corpus of 900 passages, each with a question. Like SciFact, it has no dev questions."""
    folder = tmp_path / "data" / "scifact"
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": f"p{i}", "title": "", "text": f"text {i}"} for i in range(900)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"_id": f"q{i}", "text": f"question {i}"} for i in range(900)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    for split, first, last in (("train", 0, 600), ("test", 600, 900)):
        lines = "".join(f"q{i}\tp{i}\t1\n" for i in range(first, last))
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    return tmp_path / "data"


def test_cells_of_a_corpus_share_all_but_their_train_questions(cells: Any, data: Path, tmp_path: Path) -> None:
    found = {}
    for labels, seed in (("none", 1), ("300", 1), ("300", 2), ("all", 1)):
        folder = tmp_path / f"{labels}-{seed}"
        cells.write_source(cells.Cell("scifact", labels, seed), cells.Size(700, 40, 50), data, folder)
        split = {name: cells.read_qrels(folder / "qrels" / f"{name}.tsv") for name in ("train", "dev", "test")}
        found[labels, seed] = split, (folder / "corpus.jsonl").read_text()
        passages = {json.loads(line)["_id"] for line in found[labels, seed][1].splitlines()}
        asked = {json.loads(line)["_id"] for line in (folder / "queries.jsonl").read_text().splitlines()}
        assert asked == set().union(*split.values())
        assert {passage for judged in split.values() for of in judged.values() for passage in of} <= passages
        assert not set(split["train"]) & set(split["dev"])
    assert len({json.dumps([split["test"], texts]) for split, texts in found.values()}) == 1
    assert {key: [len(of) for of in split.values()] for key, (split, _) in found.items()} == {
        ("none", 1): [0, 0, 50],
        ("300", 1): [300, 40, 50],
        ("300", 2): [300, 40, 50],
        ("all", 1): [560, 40, 50],
    }
    assert found["300", 1][0]["train"] != found["300", 2][0]["train"]
    assert found["300", 1][0]["dev"] == found["300", 2][0]["dev"] == found["all", 1][0]["dev"]


def test_the_page_shows_means_over_seeds_and_paired_differences(cells: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: over two seeds the winner has 0.75 and its start 0.5, a quarter less on every question."""
    monkeypatch.syspath_prepend(str(FOLDER))
    from quality_page import page_lines

    about = {
        "passages": 9,
        "queries": {"train": 300, "dev": 4, "test": 4},
        "seconds": 60.0,
        "winner": "x",
        "machine": "",
    }
    found = {
        f"medquad-300-{seed}": about | {"ranks": {"winner": [value] * 4, "start": [0.5] * 4}}
        for seed, value in ((1, 1.0), (2, 0.5))
    }
    page = "\n".join(page_lines(found, cells.Size(9, 4, 4), 128))
    assert "2 of 18 cells" in page and "| winner | 0.750 |" in page and "| start | 0.500 |" in page
    assert "| winner − start | +0.250 | +0.250 to +0.250 | 0.1" in page, "of 16 flips two are as far from 0"

    assert "Seeds are averaged, not resampled" in page and "Without labels" not in page

    none = {"medquad-none-1": found["medquad-300-1"] | {"queries": {"train": 0, "dev": 0, "test": 4}}}
    assert "Without labels there is no sentence-transformers" in "\n".join(page_lines(none, cells.Size(9, 4, 4), 128))

    found["medquad-300-2"]["ranks"]["sentence-transformers"] = [0.25] * 4
    page = "\n".join(page_lines(found, cells.Size(9, 4, 4), 128))
    assert "| winner − sentence-transformers | +0.250 |" in page, "only seed 2 has both, and there the winner has 0.5"


@pytest.mark.parametrize("page", ["README.md", "docs/evaluate.md", "benchmarks/quality.md"])
def test_pages_show_the_measured_figures(cells: Any, page: str) -> None:
    from quality_page import in_short

    rows = in_short(json.loads((FOLDER / "quality.measured.json").read_text(encoding="utf-8")))
    lines = (FOLDER.parent / page).read_text(encoding="utf-8").splitlines()
    shown = [line for line in lines if line.startswith(tuple(f"| {title}, " for title in cells.SETS.values()))]
    assert shown and set(shown) <= set(rows) and rows[0] in lines


def test_the_table_in_short_has_the_latest_recipe_and_its_best_figures_in_bold(cells: Any) -> None:
    from quality_page import in_short

    def cell(seconds: bool, **means: float) -> dict[str, Any]:
        ranks = {name.replace("_", " + "): [mean] * 4 for name, mean in means.items()}
        ranks |= {"retriever_2": [0.5] * 4} if seconds else {}
        return {"ranks": ranks, "queries": {"train": 300}} | ({"steps_by": "loss"} if seconds else {})

    found = {"medquad-300-1": cell(False, bm25=0.9, start=0.1, winner=0.9)}
    assert in_short(found)[2:] == ["| MedQuAD, 300 | 1 | **0.900** | 0.100 | – | **0.900** | – |"]
    found["medquad-300-2"] = cell(True, bm25=0.5, start=0.25, start_bm25=0.5, winner=0.75)
    assert in_short(found)[2:] == ["| MedQuAD, 300 | 1 | 0.500 | 0.250 | 0.500 | **0.750** | – |"]
