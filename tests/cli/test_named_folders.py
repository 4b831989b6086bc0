"""Ports with many named folders: on the command line, in their names and in the given order."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stillhouse.core.artifacts import write_manifest
from stillhouse.core.errors import InputError
from stillhouse.pipeline.graph import GraphStep
from stillhouse.pipeline.in_process import up_to_date
from stillhouse.pipeline.step_command import given_inputs, step_parser
from stillhouse.pipeline.steps.execute import execute, open_inputs
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.pipeline.steps.spec import Paths, Port, Report, Step

EVALUATE = find_step("evaluate")


def parsed(*words: str) -> dict[str, Path]:
    return given_inputs(EVALUATE, step_parser(EVALUATE).parse(words))


def made(folder: Path, text: str = "x") -> Path:
    """A folder that a step wrote."""
    folder.mkdir(parents=True)
    (folder / "test.trec").write_text(text)
    write_manifest(folder, "retrieve", {}, {}, {})
    return folder


def test_folders_have_their_names_and_stand_in_the_order_given() -> None:
    found = parsed("--run", "z=a/z", "--curves", "my-own=c", "--corpus", "k", "--run=a_1=b=c", "--run", "b=d")
    expected = {"corpus": "k", "run/z": "a/z", "run/a_1": "b=c", "run/b": "d", "curves/my-own": "c"}
    assert list(found.items()) == [(key, Path(folder)) for key, folder in expected.items()]


def test_a_folder_that_is_missing_is_refused_and_so_is_a_step_without_any(tmp_path: Path) -> None:
    corpus = made(tmp_path / "corpus")
    with pytest.raises(InputError, match="nowhere does not exist"):
        open_inputs(EVALUATE, {"corpus": corpus, "run/a": tmp_path / "nowhere"})
    with pytest.raises(InputError, match="needs at least one --run NAME=FOLDER"):
        open_inputs(EVALUATE, {"corpus": corpus, "curves/a": corpus})


@dataclasses.dataclass(frozen=True)
class Config:
    pass


def of_many(seen: list[Sequence[str]]) -> Step:
    def run(config: Config, inputs: Paths, outputs: Paths, context: Any) -> Report:
        seen.append(list(inputs))
        (outputs["out"] / "order.txt").write_text(" ".join(inputs))
        return Report("noted")

    return Step("noting", "notes its inputs", Config, (Port("run", "runs", many=True),), (Port("out", "out"),), run)


def test_another_order_of_folders_is_other_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report shows systems in the given order, so another order has other outputs."""
    seen: list[Sequence[str]] = []
    spec = of_many(seen)
    monkeypatch.setattr(GraphStep, "spec", property(lambda step: spec))
    for name in ("a", "b"):
        made(tmp_path / name / "run")

    def step(names: str) -> GraphStep:
        return GraphStep("noting", "noting", {f"run/{name}": f"{name}/run" for name in names})

    inputs: Mapping[str, Path] = step("ba").input_paths(tmp_path)
    execute(spec, Config(), inputs, step("ba").output_paths(tmp_path))
    assert seen == [["run/b", "run/a"]]
    assert up_to_date(step("ba"), Config(), tmp_path)
    assert not up_to_date(step("ab"), Config(), tmp_path)
