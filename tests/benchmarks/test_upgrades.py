"""The benchmark of upgrades: labels of one corpus arrive in slices, and the page shows hand-made figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def test_releases_share_all_but_their_train_questions(tmp_path: Path) -> None:
    import quality_cells
    from upgrades_releases import Shape, Workplace

    folder = tmp_path / "data" / "medquad"
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": f"{{}}{number}", "title": "", "text": f"text {number}"} for number in range(300)]
    for name, kind in (("corpus", "p"), ("queries", "q")):
        text = "".join(json.dumps(row | {"_id": row["_id"].format(kind)}) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    for split, first, last in (("train", 0, 200), ("dev", 200, 240), ("test", 240, 300)):
        lines = "".join(f"q{number}\tp{number}\t1\n" for number in range(first, last))
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    shape = Shape(releases=3, slice=10, passages=120, dev=15, test=20)
    place = Workplace("medquad", shape, tmp_path / "data", tmp_path / "work")
    found = []
    for number in (1, 2, 3):
        place._write_source(tmp_path / str(number), number)
        judged = {
            split: quality_cells.read_qrels(tmp_path / str(number) / "qrels" / f"{split}.tsv")
            for split in ("train", "dev", "test")
        }
        found.append((judged, (tmp_path / str(number) / "corpus.jsonl").read_text()))
        asked = {row["_id"] for row in quality_cells.rows(tmp_path / str(number) / "queries.jsonl")}
        assert asked == set().union(*judged.values())
    assert [len(judged["train"]) for judged, _ in found] == [10, 20, 30]
    assert set(found[0][0]["train"]) < set(found[1][0]["train"]) < set(found[2][0]["train"])
    assert len({json.dumps([judged["dev"], judged["test"], texts]) for judged, texts in found}) == 1
    assert len(found[0][1].splitlines()) == 120


def test_the_page_shows_shares_and_paired_differences() -> None:
    """By hand: the new queries keep 0.6 of 0.8 in the old index, and training on both sides gained 0.3."""
    from upgrades_page import page_lines

    about: dict[str, Any] = {"machine": "", "releases": 2, "slice": 10, "passages": 1500, "length": 48, "test": 4}
    first = {"labels": 10, "seconds": 5.0, "encoding_seconds": 7.0, "old": [0.5] * 4, "new": [0.5] * 4}
    tuned = {"labels": 20, "seconds": 30.0, "encoding_seconds": 8.0, "old": [0.6] * 4, "new": [0.8] * 4}
    queries = {"labels": 20, "seconds": 3.0, "old": [0.55] * 4}
    releases = {"1 first": first, "2 fine_tune": tuned, "2 query_only": queries}
    page = "\n".join(page_lines({"medquad": {"about": about | {"weight": 1.0}, "releases": releases}}))
    assert "| 2 | 20 | `fine_tune` | 60.0 | 80.0 | 75.0% | 30 | 8 |" in page
    assert "| 2 | 20 | `query_only` | 55.0 | the same | – | 3 | – |" in page
    assert "| 2 | fine_tune, new − release 1 | +30.0 | +30.0 to +30.0 | 0.1" in page, "of 16 flips two are as far"
    assert "compatible" not in page.partition("## MedQuAD")[2], "it was not run"
