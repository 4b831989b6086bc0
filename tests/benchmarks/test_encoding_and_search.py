"""The benchmarks of encoding and search, made to run in seconds: every row is there, with plausible figures."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def rows(page: Path) -> list[list[str]]:
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_search_has_a_row_an_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import search

    monkeypatch.setattr(search, "in_a_process", lambda what, kind, arguments: search.TASKS[what](kind, arguments))
    monkeypatch.setattr(search, "PART", 250)
    monkeypatch.setattr(search, "RUN_DEPTH", 50)
    small = ["--folder", str(tmp_path), "--passages", "700", "--queries", "20", "--kinds", "flat", "sq8"]
    assert search.main([*small, "--page", str(tmp_path / "page.md")]) == 0
    table = rows(tmp_path / "page.md")
    assert [row[0] for row in table] == ["flat", "sq8", "faiss, in memory"]
    assert table[0][7:] == ["1.000", "1.000"] and 0.9 < float(table[1][7]) <= 1
    assert float(table[0][3]) > float(table[1][3])
    assert "A run of 1000 lines" in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_encoding_takes_turns_with_sentence_transformers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_model: Path
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import encoding

    monkeypatch.setattr(encoding, "LENGTH", 40)
    monkeypatch.setattr(
        encoding, "fetch", lambda name, layers, pooling, query, passage, folder: encoder_at(name, pooling, folder)
    )
    monkeypatch.setattr(encoding, "in_a_process", lambda *_: 1.0)
    data = tmp_path / "squad-passages"
    data.mkdir()
    texts = [{"title": "red", "text": "the bird sings " * (1 + n % 9)} for n in range(40)]
    (data / "corpus.jsonl").write_text("\n".join(map(json.dumps, texts)), encoding="utf-8")
    page = tmp_path / "page.md"
    arguments = ["--data", str(tmp_path), "--model", str(tiny_model), "--passages", "30", "--rounds", "1"]
    assert encoding.main([*arguments, "--page", str(page)]) == 0
    table = rows(page)
    for pooling in ("cls", "mean"):
        fp32 = [row for row in table if row[0] == pooling and row[2] == "fp32"]
        assert fp32[0][1] == "Stillhouse" and len(fp32) == 1 + len(encoding.PEER_BATCHES)
        assert all(float(row[8]) < 1e-5 for row in fp32)
        assert max(float(row[5]) for row in fp32[1:]) == 1
        assert 0 < float(fp32[0][6].rstrip(" %")) < 40


def encoder_at(name: str, pooling: str, folder: Path) -> SimpleNamespace:
    from stillhouse.retrieval.models.encoder import BiEncoder

    folder.mkdir()
    BiEncoder.load(Path(name), pooling=pooling, passage_length=40).save(folder)
    return SimpleNamespace()


def test_padding_of_sentence_transformers_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_model: Path
) -> None:
    """Three texts of 3, 4 and 8 tokens in one batch are computed as 24."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import encoding

    encoder_at(str(tiny_model), "mean", tmp_path / "encoder")
    texts = ["red", "red bird", "the red bird sings in the"]
    found = encoding.padding_of_theirs(tmp_path / "encoder", texts, 3)
    assert found == pytest.approx(1 - 15 / 24)
    assert encoding.padding_of_ours(tmp_path / "encoder", texts) == pytest.approx(1 - 15 / 24)
