"""docs/troubleshooting.md: its exit codes are the program's, and its errors come from what it says they come from."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from documented_commands import ROOT

from stillhouse import cli
from stillhouse.core import errors
from stillhouse.core.errors import INTERRUPTED
from stillhouse.core.lock import only_process

TEXT = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")


def cells(heading: str) -> list[str]:
    part = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [row.split(" | ")[0].removeprefix("| ") for row in part.splitlines() if row.startswith("| ")][1:]


def test_every_exit_code_has_a_row() -> None:
    codes = {0, errors.CRASH, errors.InputError.exit_code, errors.ValidationFailed.exit_code, errors.REFUSED_CODE}
    assert {int(cell) for cell in cells("Exit codes")} == codes | {INTERRUPTED}
    assert {int(code) for code in re.findall(r"(\d+) \w", cli.overview().splitlines()[-1])} == codes | {INTERRUPTED}


TRAIN = ["--corpus", "corpus", "--encoder", "model", "--negatives", "negatives", "--retriever", "t", "--curves", "v"]


def lexical(run: Callable[[list[str]], int], corpus: str) -> None:
    run(["bm25", "--corpus", corpus, "--bm25", "b", "--run", "r", "--negatives", "negatives"])


def of_another_corpus(run: Callable[[list[str]], int]) -> None:
    run(["ingest", "--source", "sample", "--corpus", "other"])
    lexical(run, "other")
    run(["train-retriever", *TRAIN])


def diverging(run: Callable[[list[str]], int]) -> None:
    lexical(run, "corpus")
    run(["train-retriever", *TRAIN, "--learning-rate", "1e30", "--max-steps", "3", "--batch-size", "4"])


def busy(run: Callable[[list[str]], int]) -> None:
    with only_process(Path("taken")):
        run(["ingest", "--source", "sample", "--corpus", "taken"])


def port_taken(run: Callable[[list[str]], int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run(["label", "corpus", "asked", "--port", str(taken.getsockname()[1])])


def disk_full(run: Callable[[list[str]], int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "_dispatch", lambda argv: Path("/dev/full").write_text("x"))
        run(["ingest"])


WAYS: dict[str, list[str] | Callable[[Callable[[list[str]], int]], None]] = {
    "does not exist; --source takes": ["ingest", "--source", "nowhere", "--corpus", "c"],
    "has no known format": ["ingest", "--source", "pictures", "--corpus", "c"],
    "unknown setting": ["ingest", "--params", "wrong.yaml", "--corpus", "c"],
    "exists and no step wrote it": ["ingest", "--source", "sample", "--corpus", "pictures"],
    "run `stillhouse run` in a workspace": ["search", "why"],
    "has no manifest.json": ["bm25", "--corpus", "pictures", "--bm25", "b", "--run", "r", "--negatives", "n"],
    "was made from another": of_another_corpus,
    "cannot be loaded": ["fetch-model", "--model", "nobody/nothing", "--encoder", "e"],
    "is not a Hugging Face model folder": ["fetch-model", "--model", "pictures", "--encoder", "e"],
    "pip install 'stillhouse[": ["pipeline", "compile"],
    "another process is writing": busy,
    "cannot listen on": port_taken,
    "the loss is nan": diverging,
    "the disk is full": disk_full,
}
"""A command, or a function, for each error of the page."""


def test_every_error_of_the_page_is_provoked() -> None:
    assert [cell.strip("`") for cell in cells("The most common errors")] == list(WAYS)


@pytest.mark.parametrize("part", WAYS)
def test_an_error_of_the_page(
    part: str,
    tmp_path: Path,
    small_corpus: Path,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("corpus").symlink_to(small_corpus)
    Path("model").symlink_to(tiny_model)
    Path("pictures").mkdir()
    Path("pictures/one.png").write_bytes(b"PNG")
    Path("wrong.yaml").write_text("ingest: {sorce: sample}\n")
    monkeypatch.setitem(sys.modules, "kfp", None)
    way = WAYS[part]
    if isinstance(way, list):
        assert cli.main(way) == 2
    else:
        way(cli.main)
    assert part in capsys.readouterr().err
