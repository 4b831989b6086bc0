"""What `execute` refuses before any work is done, and which work is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillhouse.config import build
from stillhouse.errors import InputError
from stillhouse.steps.execute import refuse_outputs, work_name
from stillhouse.steps.registry import find_step


def make(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("mine")
    return folder


CASES = [
    ("a folder of somebody's", {}, {"corpus": "thesis"}, "no step wrote it"),
    ("a file", {}, {"corpus": "thesis/chapter.txt"}, "no step wrote it"),
    ("one folder for two outputs", {}, {"retriever": "new", "curves": "new"}, "overlap"),
    ("an output around an input", {"corpus": "old/corpus"}, {"tokens": "old"}, "overlap"),
    ("an output inside an input", {"corpus": "old"}, {"tokens": "old/tokens"}, "overlap"),
]


@pytest.mark.parametrize(("name", "inputs", "outputs", "message"), CASES, ids=[case[0] for case in CASES])
def test_nothing_but_a_steps_own_output_is_replaced(
    tmp_path: Path, name: str, inputs: dict[str, str], outputs: dict[str, str], message: str
) -> None:
    thesis = make(tmp_path / "thesis", "chapter.txt")
    make(tmp_path / "old", "manifest.json")
    given = [{key: tmp_path / value for key, value in paths.items()} for paths in (inputs, outputs)]
    with pytest.raises(InputError, match=message):
        refuse_outputs(*given)
    assert (thesis / "chapter.txt").read_text() == "mine"


def test_an_own_output_an_empty_folder_and_a_new_one_are_fine(tmp_path: Path) -> None:
    outputs = {"a": make(tmp_path / "old", "manifest.json"), "b": make(tmp_path / "empty"), "c": tmp_path / "new"}
    refuse_outputs({"corpus": tmp_path / "corpus"}, outputs)


def test_work_is_the_same_for_the_same_settings_inputs_and_source() -> None:
    """Else ingests of two corpora would wait for each other, and one revision go on with another's files."""
    step = find_step("ingest")

    def name(digests: dict[str, str], **settings: object) -> str:
        return work_name(step, build(step.config, settings, "ingest"), digests)

    known = name({}, source="one", repo="git", revision="a")
    assert known == name({}, source="one", repo="git", revision="a")
    others = [
        name({}, source="two", repo="git", revision="a"),
        name({}, source="one", repo="git", revision="b"),
        name({}, source="one", repo="git", revision="a", splits="dev=test"),
        name({"corpus": "0"}, source="one", repo="git", revision="a"),
    ]
    assert len({known, *others}) == 5
