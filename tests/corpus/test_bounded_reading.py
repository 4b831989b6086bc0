"""Functions that read every passage of a corpus do not hold all texts, titles or ids in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stillhouse.corpus.store import write_tables

PASSAGES = 60_000
TEXT = 1_000
"""Characters of a passage: 60 MB of text in total, and about 10 MB of ids and titles."""

MEASURED = """
import sys, tracemalloc
from pathlib import Path
import numpy as np, pyarrow as pa
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.report import page
from stillhouse.pretraining import token_files
from stillhouse.evaluation.relevance import not_negatives

corpus, place = Corpus.open(Path(sys.argv[1])), Path(sys.argv[2])
asked = {
    "facts": lambda: page.corpus_facts(corpus, {}),
    "structure": lambda: token_files.write_structure(place, corpus),
    "not negatives": lambda: not_negatives(corpus),
}[sys.argv[3]]
tracemalloc.start()
print(asked())
print(tracemalloc.get_traced_memory()[1] + pa.default_memory_pool().max_memory())
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    number = np.arange(PASSAGES)
    columns = {
        "passage_id": [f"{n:040d}" for n in number],
        "title": [f"title {n:040d}" for n in number],
        "text": [f"{n:09d} " * (TEXT // 10) for n in number],
        "article_id": [f"article {n // 3:040d}" for n in number],
        "section": [f"section {n:040d}" for n in number],
        "position": (number % 3).tolist(),
    }
    query = {"query_id": ["q"], "text": ["which"], "split": ["test"], "origin": ["bfs"], "taken_from": [f"{0:040d}"]}
    qrels = {"query_id": ["q"], "passage_id": [f"{3:040d}"], "relevance": [1], "split": ["test"]}
    write_tables(folder, {"passages": columns, "queries": query, "qrels": qrels})
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "megabytes", "logged"),
    [
        ("facts", 35, r"('median words a passage', '100')"),
        ("structure", 20, "{'articles': 20000, 'article_links': 0}"),
        ("not negatives", 8, "q    5"),
    ],
)
def test_reading_every_passage_holds_one_block_in_memory(
    what: str, megabytes: float, logged: str, large: Path, tmp_path: Path
) -> None:
    words = [sys.executable, "-c", MEASURED, str(large), str(tmp_path), what]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert logged in said
    assert int(said.split()[-1]) < megabytes * 1e6
