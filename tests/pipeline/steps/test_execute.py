"""What `execute` refuses before any work, and which work counts as the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from stillhouse.core import environment
from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.config import build
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.acceleration import device
from stillhouse.pipeline.steps.execute import computed_on, execute, refuse_outputs, work_name
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.pipeline.steps.spec import Paths, Port, Report, Step


def make(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("mine")
    return folder


def own(folder: Path) -> Path:
    """Return a folder that a step wrote, with a file that was damaged later."""
    with whole_folder(folder) as staging:
        (staging / "part.txt").write_text("whole")
        write_manifest(staging, "step", {}, {}, {})
    (folder / "part.txt").write_text("damaged")
    return folder


CASES = [
    ("a folder of somebody's", {}, {"corpus": "thesis"}, "no step wrote it"),
    ("somebody's manifest.json", {}, {"corpus": "extension"}, "no step wrote it"),
    ("a link", {}, {"corpus": "link"}, "no step wrote it"),
    ("below a file", {}, {"corpus": "thesis/chapter.txt/corpus"}, "chapter.txt is not a folder"),
    ("a file of somebody's in a step's own output", {}, {"corpus": "with notes"}, "holds notes.txt, which no step"),
    ("a file", {}, {"corpus": "thesis/chapter.txt"}, "no step wrote it"),
    ("one folder for two outputs", {}, {"retriever": "new", "curves": "new"}, "overlap"),
    ("an output around an input", {"corpus": "old/corpus"}, {"tokens": "old"}, "overlap"),
    ("two words", {}, {"document_scores": "thesis"}, "--document-scores: .*no step wrote it"),
    ("two words twice", {}, {"all_scores": "new", "curves": "new"}, "--all-scores .* --curves .* overlap"),
    ("an output inside an input", {"corpus": "old"}, {"tokens": "old/tokens"}, "overlap"),
]


@pytest.mark.parametrize(("name", "inputs", "outputs", "message"), CASES, ids=[case[0] for case in CASES])
def test_nothing_but_a_steps_own_output_is_replaced(
    tmp_path: Path, name: str, inputs: dict[str, str], outputs: dict[str, str], message: str
) -> None:
    thesis = make(tmp_path / "thesis", "chapter.txt")
    own(tmp_path / "old")
    make(tmp_path / "extension", "manifest.json", "popup.html")
    (tmp_path / "link").symlink_to("old")
    (own(tmp_path / "with notes") / "notes.txt").write_text("mine")
    given = [{key: tmp_path / value for key, value in paths.items()} for paths in (inputs, outputs)]
    with pytest.raises(InputError, match=message):
        refuse_outputs(*given)
    assert (thesis / "chapter.txt").read_text() == (tmp_path / "with notes" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "extension" / "manifest.json").read_text() == "mine"


def test_the_output_of_another_step_is_refused(
    small_corpus: Path, tiny_model: Path, run_step: Callable[..., dict[str, Path]]
) -> None:
    made = run_step("bm25", {"corpus": small_corpus})
    encoder = run_step("fetch-model", {}, model=str(tiny_model), query_length=16, passage_length=24)["encoder"]
    inputs = {"corpus": small_corpus, "encoder": encoder, "negatives": made["run"]}
    with pytest.raises(InputError, match=r"negatives: .*/run is not what this step reads"):
        run_step("train-retriever", inputs, max_steps=1)


def test_work_is_the_same_for_the_same_settings_inputs_and_source() -> None:
    """Otherwise ingests of two corpora would wait for each other, and one revision would use another's files."""
    step = find_step("ingest")

    def name(digests: dict[str, str], **settings: object) -> str:
        return work_name(step, build(step.config, settings, "ingest"), digests)

    known = name({}, source="one", repo="git", revision="a")
    assert known == name({}, source="one", repo="git", revision="a")
    others = [
        name({}, source="two", repo="git", revision="a"),
        name({}, source="one", repo="git", revision="b"),
        name({}, source="one", repo="git", revision="a", splits={"dev": "test"}),
        name({"corpus": "0"}, source="one", repo="git", revision="a"),
    ]
    assert len({known, *others}) == 5


@dataclass(frozen=True)
class Precision:
    precision: str = "auto"


def work_of(tmp_path: Path, settings: Precision | None = None) -> str:
    """Run a step that computes with a model, and return the name of its work folder."""
    names = []

    def note(config: Precision, inputs: Paths, outputs: Paths, context: Context) -> Report:
        names.append(context.work.name)
        return Report("noted")

    step = Step("noting", "notes its work folder", Precision, (), (Port("out", "nothing"),), note)
    execute(step, settings or Precision(), {}, {"out": tmp_path / "out"})
    return names[0]


@pytest.mark.parametrize("what", ["a library", "Python", "the device", "bf16 in hardware"])
def test_unfinished_work_is_not_resumed_if_results_would_differ(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise two devices or two sets of libraries could compute parts of one result."""
    monkeypatch.setattr(device, "has_bf16", lambda device: False)
    before = work_of(tmp_path)
    assert before == work_of(tmp_path)
    if what == "a library":
        version = environment.version
        monkeypatch.setattr(environment, "version", lambda name: "99.0" if name == "torch" else version(name))
        monkeypatch.setattr(environment, "libraries", environment.libraries.__wrapped__)  # uncached as in a new process
    elif what == "Python":
        monkeypatch.setattr(environment.sys, "version_info", (3, 99))
    elif what == "the device":
        monkeypatch.setattr(Context, "torch_device", lambda context: torch.device("cuda", 0))
    else:
        monkeypatch.setattr(device, "has_bf16", lambda device: True)
        assert work_of(tmp_path, Precision("bf16")) != work_of(tmp_path, Precision("fp32"))
    assert work_of(tmp_path) != before


@pytest.mark.parametrize("name", ["ingest", "tokenize", "count", "bm25", "evaluate"])
def test_a_step_without_a_model_does_not_load_torch_for_its_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "stillhouse.models.acceleration.device")
    step = find_step(name)
    config = build(step.config, {}, name)
    assert work_name(step, config, {}, computed_on(config)).startswith(f"{name}-")
