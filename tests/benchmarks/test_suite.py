"""The suite: results are kept, ratios and values are right, and both sides of a row do the same work."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stillhouse.pretraining.objectives import NAMES

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The suite with two parts that take no time, measured in this process."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import suite
    from suite_parts import Part, Row

    done: list[tuple[str, ...]] = []

    def side(seconds: float, value: float) -> Any:
        return lambda job: lambda: {"seconds": seconds * job.size, "value": value}

    rows = (Row("a", side(2, 0.5), {"json": side(3, 0.5001), "no_such_module": side(1, 1)}), Row("b", side(1, 7)))
    two = {
        "one": Part("one", "What.", "things", (1, 10, 100), rows),
        "two": Part("two", "What.", "things", (1, 10, 100), (Row("c", side(4, 1), {"json": side(1, 2)}),)),
        "three": Part("three", "What.", "things", (1, 10, 100), rows, needs=("no-data",)),
    }

    def run_alone(_: Path, words: list[str], **__: str) -> dict[str, Any]:
        arguments = words[words.index("--one") + 1 :]
        done.append(tuple(arguments))
        if len(done) == suite.killed_at:
            raise KeyboardInterrupt
        if arguments[3] == suite.broken:
            raise subprocess.CalledProcessError(1, "python")
        name, size, row, side = arguments
        if side == suite.PREPARE:
            return {}
        [chosen] = [each for each in two[name].rows if each.name == row]
        job = suite.Job(two[name].sizes[int(size)], Path(), Path())
        found = (chosen.ours if side == suite.OURS else chosen.peers[side])(job)()
        return {"peak": 10.0, "load": 0.0, **({"waiting": 0.0123} if row == "b" else {}), **found}

    monkeypatch.setattr(suite, "parts", lambda: two)
    monkeypatch.setattr(suite, "run_alone", run_alone)
    for name, value in {"done": done, "killed_at": 0, "broken": ""}.items():
        monkeypatch.setattr(suite, name, value, raising=False)
    return suite


def cells(page: Path) -> list[list[str]]:
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in table if row[0].replace(",", "").isdigit()]


def test_a_stopped_run_resumes_and_ends_with_all_figures(suite: Any, tmp_path: Path) -> None:
    words = ["--folder", str(tmp_path), "--rounds", "2", "--page", str(tmp_path / "page.md")]
    suite.killed_at = 6
    with pytest.raises(KeyboardInterrupt):
        suite.main(words)
    assert suite.main(words) == 0
    measured = [each for each in suite.done if each[3] != suite.PREPARE]
    # Three sides run twice at three sizes and two sides likewise; the one that was killed starts again.
    assert len(measured) == 3 * 2 * 3 + 2 * 2 * 3 + 1
    assert suite.main(words) == 0 and len([each for each in suite.done if each[3] != suite.PREPARE]) == len(measured)
    table = cells(tmp_path / "page.md")
    assert len(table) == 3 * 3
    twice = ["2 (2 to 2)", "3 (3 to 3)", "1.50 (1.50 to 1.50)"]
    assert table[0] == ["1", "a", twice[0], "0.5", "10", "", "json", *twice[1:], "10", "same"]
    assert table[1] == ["1", "b", "1 (1 to 1)", "1", "10", "1.23 %", "", "", "", "", "7"]
    # There is no such column if nothing waits for data.
    assert table[6][5:] == ["json", "1 (1 to 1)", "0.25 (0.25 to 0.25)", "10", "1, 2"]
    assert not list((tmp_path / "inputs").iterdir())


def test_quick_takes_the_smallest_size_of_the_parts_asked_for(suite: Any, tmp_path: Path) -> None:
    assert suite.main(["two", "--folder", str(tmp_path), "--quick"]) == 0
    assert {each[:2] for each in suite.done} == {("two", "0")} and len(suite.done) == 3
    assert len(cells(tmp_path / "suite.md")) == 1
    assert suite.main(["page", "--folder", str(tmp_path), "--quick"]) == 0 and len(suite.done) == 3


def test_a_side_that_fails_is_reported_and_the_others_go_on(
    suite: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.broken = "json"
    assert suite.main(["--folder", str(tmp_path), "--quick"]) == 1
    logged = capsys.readouterr().err
    assert "failed: one, 1, a, json ended with 1" in logged
    assert "no_such_module is not installed" in logged and "three needs no-data" in logged
    assert [row[1] for row in cells(tmp_path / "suite.md")] == ["a", "b", "c"]


def test_an_unknown_part_is_named(suite: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        suite.main(["tow", "--folder", str(tmp_path)])
    assert "there is no part tow; the parts are one, two, three" in capsys.readouterr().err


SMALL = {
    "ingest": 300,
    "tokenizing": 40,
    "counting": 2000,
    "masking": 4,
    "index": 700,
    "search": 700,
    "lexical": 250,
    "evaluation": 20,
}


@pytest.mark.parametrize("name", SMALL)
def test_both_sides_of_a_row_give_the_same_value(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: Path, name: str
) -> None:
    """Every side runs, and where both have a value, it is the same."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import masking
    import search
    import suite_page
    from suite_parts import Job, parts

    monkeypatch.setattr(masking, "ROUNDS", 1)
    monkeypatch.setattr(masking.milliseconds, "__defaults__", (1,))
    monkeypatch.setattr(search, "PART", 250)
    part = parts()[name]
    job = Job(SMALL[name], tmp_path / "inputs", data)
    job.folder.mkdir()
    part.prepare(job)
    for row in part.rows:
        ours = row.ours(job)() or {}
        for peer, side in row.peers.items():
            if not importlib.util.find_spec(peer.split(",")[0]):
                continue
            theirs = side(job)() or {}
            said = suite_page.compared(ours.get("value"), theirs.get("value"), row.same)
            assert said in ("", "same"), (row.name, peer)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (0.5, 0.50001, "same"),
        (0.5, 0.51, "0.5, 0.51"),
        ([0.5, 0.25], [0.5, 0.25], "same"),
        ([0.5, 0.25], [0.5, 0.75], "0.25, 0.75"),
        (None, 0.5, ""),
    ],
)
def test_values_that_differ_are_shown(monkeypatch: pytest.MonkeyPatch, ours: Any, theirs: Any, said: str) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import suite_page

    assert suite_page.compared(ours, theirs, 1e-3) == said


def test_a_step_of_pre_training_is_measured_on_both_sides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="transformers trains with it")
    monkeypatch.syspath_prepend(str(FOLDER))
    import suite_training
    from suite_parts import Job

    for setting, value in {"LAYERS": 1, "WIDTH": 192, "LENGTH": 16, "PRETRAINING_STEPS": 2}.items():
        monkeypatch.setattr(suite_training, setting, value)
    job = Job(2, tmp_path, tmp_path)
    for side in (suite_training.pretraining("bow"), suite_training.pretraining("wlp"), suite_training.trainer):
        found = side(job)()
        assert found["seconds"] > 0 and 0 <= found.get("waiting", 0) < 1
    [pretraining] = [part for part in suite_training.PARTS if part.name == "pretraining"]
    assert {row.name.strip("`") for row in pretraining.rows} == {*NAMES, "ict", "bfs", "wlp"}
