"""The command line: precedence of settings, errors with the nearest valid word, exit codes, helpful help."""

from __future__ import annotations

import dataclasses
import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillhouse import cli
from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.config import setting
from stillhouse.core.context import DEVICE, QUIET, WORK_ROOT, device
from stillhouse.core.errors import ValidationFailed
from stillhouse.pipeline.steps import registry
from stillhouse.pipeline.steps.spec import Report

pytestmark = pytest.mark.usefixtures("here")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MineConfig:
    """Settings of a stand-in for `mine`."""

    depth: int = setting(200, "how many", minimum=1, maximum=1000)
    temperature: float = setting(0.02, "100% of it", minimum=0)
    normalize: bool = setting(True, "unit length")
    similarity: str = setting("cosine", "how", choices=("cosine", "dot"))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Replaces the body of a step, and returns the list of settings that it is called with."""

    def install(name: str, config: type | None = None, error: BaseException | None = None, **facts: Any) -> list[Any]:
        seen: list[Any] = []

        def run(config: Any, inputs: Any, outputs: Any, context: Any) -> Report:
            seen.append(config)
            for folder in outputs.values():
                (folder / "data.txt").write_text(f"{config}\n")
            if error is not None:
                raise error
            return Report("done", metrics={"passages": 3.0}, facts=facts)

        step = registry.steps()[name]
        changed = dataclasses.replace(step, run=run, config=config or step.config)
        monkeypatch.setitem(registry.steps(), name, changed)
        return seen

    return install


def artifact(path: Path, step: str) -> Path:
    with whole_folder(path) as staging:
        (staging / "rows.txt").write_text("1\n")
        write_manifest(staging, step, {}, {}, {})
    return path


def mine(*flags: str) -> int:
    """Calls the stand-in for `mine` with valid folders."""
    for name in ("corpus", "retriever", "index"):
        artifact(Path(name), name)
    folders = ["--corpus", "corpus", "--retriever", "retriever", "--index", "index", "--negatives", "negatives"]
    return cli.main(["mine", *folders, *flags])


PRECEDENCE = {
    "defaults": ("", [], {}),
    "recipe": ("mine_1: {depth: 7}", ["--params", "params.yaml:mine_1"], {"depth": 7}),
    "section of the step": ("mine: {depth: 8}", ["--params", "params.yaml"], {"depth": 8}),
    "section left out": ("mine_2: {depth: 8}", ["--params", "params.yaml:mine_1"], {}),
    "flag over recipe": ("mine_1: {depth: 7}", ["--params", "params.yaml:mine_1", "--depth", "9"], {"depth": 9}),
    "flag beside recipe": (
        "mine_1: {depth: 7}",
        ["--params", "params.yaml:mine_1", "--similarity=dot"],
        {"depth": 7, "similarity": "dot"},
    ),
    "exponent in YAML": ("mine_1: {temperature: 2e-5}", ["--params", "params.yaml:mine_1"], {"temperature": 2e-5}),
    "exponent as flag": ("", ["--temperature", "2e-5"], {"temperature": 2e-5}),
    "whole number for a number": ("", ["--temperature", "1"], {"temperature": 1.0}),
    "switch": ("", ["--normalize", "false"], {"normalize": False}),
    "bare switch": ("mine_1: {normalize: false}", ["--params", "params.yaml:mine_1", "--normalize"], {}),
}


@pytest.mark.parametrize("case", PRECEDENCE)
def test_settings_come_from_default_then_recipe_then_flag(case: str, stand_in: Any) -> None:
    recipe, flags, expected = PRECEDENCE[case]
    Path("params.yaml").write_text(recipe)
    seen = stand_in("mine", MineConfig)
    assert mine(*flags) == 0
    assert seen == [MineConfig(**expected)]


BAD = {
    "unknown command": (["minne"], "did you mean 'mine'?"),
    "unknown flag of the command itself": (["--verson"], "did you mean '--version'?"),
    "unknown flag": (["mine", "--dept", "3"], "no flag --dept; did you mean '--depth'?"),
    "abbreviated flag": (["mine", "--sim", "dot"], "no flag --sim"),
    "flag without value": (["mine", "--depth"], "--depth"),
    "stray word": (["mine", "corpus"], "takes no argument 'corpus'"),
    "unknown device": (["mine", "--device", "gpu"], "--device"),
    "no recipe": (["mine", "--params", "absent.yaml:mine_1"], "absent.yaml does not exist"),
    "unknown section": (["mine", "--params", "good.yaml:mine_3"], "did you mean 'mine_"),
    "section of another step": (["mine", "--params", "good.yaml:teacher"], "is for step 'score-pairs', not 'mine'"),
    "unknown section in the file": (["mine", "--params", "section.yaml:mine_1"], "did you mean 'retriever_1'?"),
    "missing required input": (["mine", "--negatives", "out"], "needs --corpus"),
    "missing folder": (["mine", "--corpus", "absent", "--negatives", "out"], "absent does not exist"),
    "no output": (["mine", "--corpus", "corpus"], "needs --negatives"),
    "search without artifacts": (["search", "why"], "`stillhouse run`"),
    "search for none": (["search", "--top", "0", "why"], "--top must be at least 1"),
    "unknown recipe": (["run", "--recipe", "labeled"], "did you mean 'labelled'?"),
    "unknown action": (["pipeline", "compil"], "did you mean 'compile'?"),
    "new without folder": (["new"], "FOLDER"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(case: str, stand_in: Any, capsys: pytest.CaptureFixture[str]) -> None:
    Path("good.yaml").write_text("mine_1: {depth: 3}")
    Path("section.yaml").write_text("retriver_1: {}")
    seen = stand_in("mine", MineConfig)
    argv, message = BAD[case]
    assert cli.main(argv) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("stillhouse: ") and "Traceback" not in error
    assert not seen and not Path("out").exists()


ENDS = {
    "done": (None, 0, ""),
    "crash": (ZeroDivisionError("division by zero"), 1, "ZeroDivisionError: division by zero"),
    "full disk": (OSError(errno.ENOSPC, "No space left on device"), 1, "the disk is full"),
    "failed validation": (ValidationFailed("12 passages are empty"), 3, "stillhouse: 12 passages are empty"),
    "interrupted": (KeyboardInterrupt(), 130, "interrupted"),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_exit_code_shows_how_a_command_ended(case: str, stand_in: Any, capsys: pytest.CaptureFixture[str]) -> None:
    error, code, message = ENDS[case]
    stand_in("mine", MineConfig, error)
    assert mine() == code
    said = capsys.readouterr().err
    assert message in said
    assert ("Traceback" in said) == (case == "crash")
    assert Path("negatives").exists() == (code == 0)


def test_a_verdict_of_failed_ends_with_3_and_keeps_the_report(stand_in: Any) -> None:
    artifact(Path("corpus"), "ingest")
    stand_in("validate", passed=False)
    assert cli.main(["validate", "--corpus", "corpus", "--validation", "validation"]) == 3
    assert Path("validation/data.txt").is_file()


def test_context_flags_reach_the_step_and_nothing_after_it(monkeypatch: pytest.MonkeyPatch, stand_in: Any) -> None:
    for name in (WORK_ROOT, DEVICE, QUIET):
        monkeypatch.delenv(name, raising=False)
    stand_in("mine", MineConfig, RuntimeError("stopped"))
    assert mine("--work", "unfinished", "--device", "cpu", "--quiet") == 1
    assert len(list(Path("unfinished").iterdir())) == 1, "a stopped step keeps its work folder"
    assert not Path(".stillhouse").exists()
    assert device() == "auto"


def test_help_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'transformers', 'pandas', 'pyarrow', 'faiss', 'numpy', 'kfp', 'dvc', 'great_expectations'}"
    code = f"import sys; from stillhouse.cli import main; main(['mine', '--help']); print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
