"""The quality benchmark: cells of a corpus have the same test questions, and the page shows hand-made figures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
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
    assert "| +0.000 to +0.500 | +0.500, +0.000 |" in page, "a quarter of the draws has seed 1 alone, a quarter seed 2"
    assert "Without labels" not in page

    none = {"medquad-none-1": found["medquad-300-1"] | {"queries": {"train": 0, "dev": 0, "test": 4}}}
    assert "Without labels there is no sentence-transformers" in "\n".join(page_lines(none, cells.Size(9, 4, 4), 128))

    found["medquad-300-2"]["ranks"]["sentence-transformers"] = [0.25] * 4
    page = "\n".join(page_lines(found, cells.Size(9, 4, 4), 128))
    assert "| winner − sentence-transformers | +0.250 |" in page, "only seed 2 has both, and there the winner has 0.5"


def test_an_interval_over_seeds_and_questions_draws_both_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against draws one after another, each a mean of drawn seeds on drawn questions."""
    monkeypatch.syspath_prepend(str(FOLDER))
    from quality_page import interval_over_both

    rng = np.random.default_rng(1)
    apart_SQ = rng.normal(0.1, 0.5, size=(3, 40)) + np.array([[-0.1], [0.0], [0.2]])
    means = [apart_SQ[rng.integers(0, 3, 3)][:, rng.integers(0, 40, 40)].mean() for _ in range(10_000)]
    assert interval_over_both(apart_SQ) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.01)


@pytest.fixture
def ran(cells: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand-ins for both sides of a cell, which are listed as they run, and a page and figures in `tmp_path`."""
    import quality

    did: list[str] = []

    def run_ours(cell: Any, folder: Path, length: int) -> dict[str, Any]:
        did.append(cell.name)
        if (tmp_path / "stop").exists():
            raise KeyboardInterrupt
        about = {"passages": 9, "queries": {"train": 300, "dev": 4, "test": 4}, "seconds": 60.0, "winner": "x"}
        return about | {"ranks": {name: [0.5] * 4 for name in ("bm25", "start", "start + bm25", "winner")}}

    def run_peer(cell: Any, folder: Path, length: int, seconds: float) -> dict[str, list[float]]:
        did.append(f"{cell.name} of the peer")
        return {quality.PEER: [0.25] * 4}

    for name, stand_in in (("run_ours", run_ours), ("run_peer", run_peer), ("machine", lambda *names: "")):
        monkeypatch.setattr(quality, name, stand_in)
    monkeypatch.setattr(quality, "HERE", tmp_path)
    monkeypatch.setattr(quality, "MEASURED", tmp_path / "measured.json")
    return did


def test_a_benchmark_goes_on_where_it_was(ran: list[str], data: Path, tmp_path: Path) -> None:
    import quality

    first, second = "scifact-none-1", "scifact-300-1"
    words = ["--folder", str(tmp_path / "out"), "--data", str(data), "--only"]
    sizes = ["--passages", "700", "--dev-queries", "40", "--test-queries", "50"]

    def added(*more: str) -> list[str]:
        before = len(ran)
        quality.main([*words, first, second, *sizes, *more])
        return ran[before:]

    assert quality.main([*words, first, *sizes]) == 0 and ran == [first], "without labels there is no peer"
    (tmp_path / "stop").touch()
    with pytest.raises(KeyboardInterrupt):
        added()
    assert ran[1:] == [second] and list(json.loads((tmp_path / "measured.json").read_text())) == [first]
    (tmp_path / "stop").unlink()
    assert added("--no-peer") == [second], "only what was stopped"
    assert added() == [f"{second} of the peer"]
    assert added() == []
    assert added("--again") == [first, second, f"{second} of the peer"]
    found = json.loads((tmp_path / "measured.json").read_text())
    assert found[second]["ranks"].keys() == {"bm25", "start", "start + bm25", "winner", quality.PEER}


def test_a_cell_that_was_stopped_begins_anew(cells: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is that of a whole run, and nothing that was made from the stopped one is measured."""
    import quality_run

    commands: list[str] = []

    def stillhouse(*words: str, cwd: Path | None = None) -> None:
        commands.append(words[0])
        folder = tmp_path / "ours"
        if words[0] == "new":
            folder.mkdir()  # fails if the stopped run is still there
            (folder / "params.yaml").write_text("fetch_model: {passage_length: 256}\n")
            return
        best = folder / "artifacts" / "best" / "retriever"
        best.mkdir(parents=True)
        if commands == ["new", "run"]:
            raise KeyboardInterrupt
        (best / "manifest.json").write_text('{"facts": {"winner": "retriever_1"}}')
        (folder / "artifacts" / "bm25" / "run").mkdir(parents=True)

    corpus = SimpleNamespace(passages=range(9), queries_of=lambda split: pd.DataFrame({"origin": ["source"] * 4}))
    monkeypatch.setattr(quality_run, "stillhouse", stillhouse)
    monkeypatch.setattr(quality_run, "Corpus", SimpleNamespace(open=lambda folder: corpus))
    monkeypatch.setattr(quality_run, "ranks_of", lambda corpus, runs: {name: [1.0] * 4 for name in runs})
    for name in ("STILLHOUSE_WORK", "STILLHOUSE_QUIET"):  # the benchmark sets them for its process
        monkeypatch.setenv(name, os.environ.get(name, ""))
    cell = cells.Cell("scifact", "300", 2)
    with pytest.raises(KeyboardInterrupt):
        quality_run.run_ours(cell, tmp_path, 128)
    for name in ("work", "teacher", "peer", "peer_run"):
        (tmp_path / name).mkdir()
    found = quality_run.run_ours(cell, tmp_path, 128)
    assert commands == ["new", "run"] * 2 and (found["winner"], found["ranks"]) == ("retriever_1", {"bm25": [1.0] * 4})
    assert {path.name for path in tmp_path.iterdir()} == {"ours", "seconds"}
    assert quality_run.run_ours(cell, tmp_path, 128) == found and len(commands) == 4, (
        "a run that is done is only measured"
    )


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
