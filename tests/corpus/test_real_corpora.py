"""Ingest of real data, against the counts that came with it. Needs the data; skips where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stillhouse.corpus.ingestion import Choices, ingest_source
from stillhouse.corpus.sources.detect import open_source

DATA = Path(os.environ.get("STILLHOUSE_DATA") or Path(__file__).parents[3] / "shared" / "data")


def ingested(name: str, tmp_path: Path) -> dict[str, object]:
    folder = DATA / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent; set STILLHOUSE_DATA to the folder that holds {name}")
    return ingest_source(open_source(str(folder)), Choices(max_queries={}, seed=0), tmp_path)


@pytest.mark.parametrize(
    ("name", "passages", "train", "dev", "test", "leaks"),
    [
        ("squad-passages", 4496, 10673, 1138, 10532, 0),
        # One train query of medquad has the text of a test query, but for letter case or spacing.
        ("medquad", 15775, 11685, 1527, 1737, 1),
    ],
)
def test_labelled_sets(name: str, passages: int, train: int, dev: int, test: int, leaks: int, tmp_path: Path) -> None:
    facts = ingested(name, tmp_path)
    leak = "the same text is in test"
    assert facts["passages"] == passages
    assert facts["queries"] == {"train": train - leaks, "dev": dev, "test": test}
    assert facts["rejected"] == ({f"query: {leak}": leaks, f"qrel: its query: {leak}": leaks} if leaks else {})


def test_articles(tmp_path: Path) -> None:
    facts = ingested("peps-articles", tmp_path)
    rejected = facts["rejected"]
    # 736 articles of 38,553 paragraphs; those without a paragraph, and links of theirs or to them, are not taken.
    assert rejected == {"passage: article without a paragraph": 2, "link: points to no article": 1}
    assert (facts["articles"], facts["passages"]) == (736 - 2, 38553)
    assert facts["links"] == 1660 - 3
