"""Ingests real data and compares published counts. Skipped without the data."""

from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from sources_to_damage import AS_GIVEN

from stillhouse.corpus.ingestion import ingest_source
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.distractors import with_distractors
from stillhouse.corpus.sources.options import Options
from stillhouse.corpus.sources.rows import Passage, Source, whole
from stillhouse.corpus.store import Corpus

DATA = Path(os.environ.get("STILLHOUSE_DATA") or Path(__file__).parents[3] / "shared" / "data")


def real(name: str) -> Path:
    folder = DATA / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent; set STILLHOUSE_DATA to the folder that holds {name}")
    return folder


def ingested(name: str, tmp_path: Path, **options: str) -> dict[str, Any]:
    source = open_source(str(real(name)), options=Options(**options))
    return ingest_source(source, AS_GIVEN, tmp_path)


@pytest.mark.parametrize(
    ("name", "passages", "train", "dev", "test", "leaks"),
    [
        ("squad-passages", 4496, 10673, 1138, 10532, 0),
        # One train query of medquad has the text of a test query, except for letter case or spacing.
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
    # 736 articles have 38,553 paragraphs; articles without a paragraph are left out, with links from or to them.
    assert rejected == {"passage: article without a paragraph": 2, "link: points to no article": 1}
    assert (facts["articles"], facts["passages"]) == (736 - 2, 38553)
    assert facts["links"] == 1660 - 3


def test_squad_json(tmp_path: Path) -> None:
    """Compare with the questions and answers counted in the files themselves."""
    facts = ingested("squad-json", tmp_path)
    for split, path in (("train", "train44-v1.1.json"), ("dev", "dev-v1.1.json")):
        articles = json.loads((DATA / "squad-json" / path).read_text(encoding="utf-8"))["data"]
        questions = [q for article in articles for paragraph in article["paragraphs"] for q in paragraph["qas"]]
        answers = {(question["id"], answer["text"]) for question in questions for answer in question["answers"]}
        assert facts["queries"][split] == facts["qrels"][split] == len(questions)
        assert facts["answers"][split] == len(answers)
    assert facts["articles"] == 48 + 44 and facts["queries"]["dev"] == 10570
    # One paragraph occurs twice in the files; squad-passages has it once.
    assert facts["passages"] == 4496 + 1
    assert facts["rejected"] == facts["left_out"] == {}
    corpus = Corpus.open(tmp_path)
    text = corpus.passages.set_index("passage_id")["text"]
    gold = corpus.qrels.set_index("query_id")["passage_id"]
    for answer in islice(corpus.answers.itertuples(), 0, None, 50):
        assert answer.answer in text[gold[answer.query_id]]


@pytest.mark.parametrize(
    ("division", "train", "dev", "test", "leaks"),
    [("80/20", 16087, 1787, 4469, 4), ("5/95", 1006, 111, 21226, 0), ("1/99", 201, 22, 22120, 0)],
)
def test_reqa(division: str, train: int, dev: int, test: int, leaks: int, tmp_path: Path) -> None:
    facts = ingested("reqa-squad", tmp_path, reqa_split=division)
    assert (facts["passages"], facts["articles"]) == (20702, 4496)
    assert train + dev + test == 22343
    assert facts["queries"] == {"train": train - leaks, "dev": dev, "test": test}
    leak = "the same text is in test"
    assert facts["rejected"] == ({f"query: {leak}": leaks, f"qrel: its query: {leak}": leaks} if leaks else {})
    passages = Corpus.open(tmp_path).passages
    assert all(title in text for title, text in zip(passages["title"], passages["text"]))


def test_distractors_of_wikipedia(tmp_path: Path) -> None:
    source, wiki = open_source(str(real("reqa-squad"))), open_source(str(real("wiki-intro")))
    few = Source(wiki.format, {}, whole(lambda: islice(wiki.rows(), 500)))
    count = sum(isinstance(row, Passage) for row in few.rows())
    facts = ingest_source(with_distractors(source, few, 0, 0, "en"), AS_GIVEN, tmp_path)
    passages = Corpus.open(tmp_path).passages
    added = passages[passages["passage_id"].str.startswith("distractor:")]
    assert added["article_id"].nunique() == count == 500
    assert facts["passages"] == 20702 + len(added) and len(added) > 2 * count
