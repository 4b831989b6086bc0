"""The cost of `import stillhouse`, its names, and their documentation."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import stillhouse
from stillhouse.pipeline.steps.registry import MODULES, find_step

STEPS = {name: name.replace("_", "-") for name in MODULES if name != "encode"}
HEAVY = ("torch", "transformers", "faiss", "numpy", "pandas", "pyarrow", "bm25s", "matplotlib")


@pytest.mark.parametrize("names", ["", ", ".join(STEPS), "encode, predict, new, run, InputError, StepResult"])
def test_nothing_heavy_is_imported_before_it_is_used(names: str) -> None:
    line = f"from stillhouse import {names}" if names else "import stillhouse"
    code = f"{line}\nimport sys\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_class_loads_torch_when_it_is_named() -> None:
    code = "import sys, stillhouse\nprint('torch' in sys.modules)\nstillhouse.BiEncoder\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\nTrue\n"


def test_type_checkers_see_the_classes_that_are_there() -> None:
    tree = ast.parse(Path(stillhouse.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert set(stillhouse.__all__) <= set(dir(stillhouse))
    assert set(seen) == {name for name in stillhouse.__all__ if isinstance(getattr(stillhouse, name), type)}
    for name, module in seen.items():
        assert getattr(stillhouse, name).__module__ == module, name


def test_an_unknown_name_is_an_import_error() -> None:
    assert not hasattr(stillhouse, "trainretriever")
    with pytest.raises(ImportError):
        from stillhouse import nothing  # noqa: F401


@pytest.mark.parametrize(("name", "step"), STEPS.items())
def test_help_and_completion_show_every_setting(name: str, step: str) -> None:
    function, config = getattr(stillhouse, name), find_step(step).config
    parameters = inspect.signature(function).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    for setting in fields(config):
        assert setting.name in parameters
        if parameters[setting.name].default is not inspect.Parameter.empty:
            assert parameters[setting.name].default == setting.default
            assert f"    {setting.name}: " in function.__doc__
