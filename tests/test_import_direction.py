"""Imports go one way, down the layers of docs/architecture.md, and the science does not depend on a platform."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Container, Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from stillhouse.core.environment import BUILDS, LIBRARIES

ROOT = Path(__file__).resolve().parent.parent
LAYERS = (
    "stillhouse/cli",
    "stillhouse/kubeflow/pipelines",
    "stillhouse/kubeflow",
    "stillhouse/serving",
    "stillhouse/releases",
    "stillhouse/experiments",
    "stillhouse/pipeline/api",
    "stillhouse/pipeline",
    "stillhouse/pipeline/steps",
    "stillhouse/pretraining",
    "stillhouse/training",
    "stillhouse/search",
    "stillhouse/evaluation",
    "stillhouse/models",
    "stillhouse/corpus",
    "stillhouse/core",
)
"""The folders from top to bottom, as docs/architecture.md shows them.

A module imports from its own row and from the rows below. A folder stands for its modules that no other row covers.
"""
FACE = "stillhouse/__init__.py"
"""The public Python API, above the layers; any module may read its `__version__`."""
PROGRAM = "stillhouse.cli"
"""The command line. Pods run it by this name in a process of its own, as a person does."""
SCIENCE = ("corpus", "models", "evaluation", "search", "training", "pretraining")
PLATFORM = {"kfp", "dvc", "kubernetes", "great_expectations", "prometheus_client"}
HEAVY = {"torch", "transformers", "sentence_transformers", "pandas", "pyarrow", "numpy", "scipy", "faiss", "bm25s"}
HEAVY |= {"matplotlib", "ir_measures"}
CHEAP = (
    "stillhouse/pipeline/steps",
    "stillhouse/pipeline",
    "stillhouse/cli",
    "stillhouse/pipeline/api",
    "stillhouse/kubeflow",
    "stillhouse/experiments/comparison/graph.py",
    "stillhouse/experiments/comparison/plan.py",
    "stillhouse/experiments/comparison/run.py",
    "stillhouse/experiments/comparison/sweeps.py",
    "stillhouse/experiments/zero_shot/arguments.py",
    "stillhouse/experiments/zero_shot/plan.py",
)
NOT_COUNTED = {
    "PyYAML": "reads settings, which are recorded",
    "dvc": "copies what a commit names",
    "dvc-data": "the same",
    "dulwich": "the same",
    "huggingface_hub": "fetches the files of a name on the hub, which are recorded",
    "ir_datasets": "in no image; a source that it fetches is no more pinned down than any other place",
    "ray": "divides the reading, whose results are the same without it",
}


def modules(folder: str) -> list[Path]:
    found = [ROOT / folder] if folder.endswith(".py") else sorted((ROOT / folder).rglob("*.py"))
    assert found, folder
    return found


@cache
def imports(path: Path, *, top: bool = False) -> tuple[str, ...]:
    """Every module that a file imports; with `top`, only what importing the file itself imports."""
    found: list[str] = []
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if top and (isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or _is_for_types(node)):
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def steps(path: Path, package: str, *, top: bool) -> bool:
    return any(within(name, (package,)) for name in imports(path, top=top))


def within(name: str, packages: tuple[str, ...] | set[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def layer(path: Path) -> int:
    """The row of a file, 0 at the top. Raises `ValueError` for one that is in no folder of `LAYERS`."""
    name = path.relative_to(ROOT).as_posix()
    found = next((above.as_posix() for above in Path(name).parents if above.as_posix() in LAYERS), None)
    if found is None:
        raise ValueError(f"{name} is in no row of LAYERS; give its folder one, here and in docs/architecture.md")
    return LAYERS.index(found)


def own_modules() -> dict[str, Path]:
    """Map the name of every module of the package to its file."""
    files = modules("stillhouse")
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


def named(path: Path) -> Iterator[str]:
    """Yield every module that a file imports, and every dotted name in a string, which it may import or run."""
    yield from imports(path)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"\w+(\.\w+)+", node.value):
            yield node.value


def test_imports_run_down_the_layers() -> None:
    """Imports at the top, in functions, for types and by string count."""
    names = own_modules()
    wrong = []
    for path in names.values():
        if path == ROOT / FACE:
            continue
        said = set(imports(path))
        for found in named(path):
            target = names.get(_module(found, names), path)
            if found == PROGRAM and found not in said:
                continue
            if target == ROOT / FACE:
                if found in said and found != "stillhouse.__version__":  # "stillhouse.json" is a file
                    wrong.append(f"{path.relative_to(ROOT)} -> {found}")
            elif layer(target) < layer(path):
                wrong.append(f"{path.relative_to(ROOT)} -> {found}")
    assert not wrong, "\n".join(wrong)


def test_architecture_shows_the_layers() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("## Layers")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `([\w/]+)/` \|", section, re.MULTILINE)) == LAYERS


@pytest.mark.parametrize("package", SCIENCE)
def test_science_imports_no_platform(package: str) -> None:
    allowed = {"great_expectations"} if package == "corpus" else set()
    for path in modules(f"stillhouse/{package}"):
        wrong = [name for name in imports(path) if within(name, PLATFORM - allowed)]
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_only_the_first_module_in_a_pod_imports_kfp() -> None:
    """It calls kfp's executor, which runs the library. `kubeflow/pipelines` and the commands above it import kfp."""
    above, first = LAYERS.index("stillhouse/kubeflow/pipelines"), ROOT / "stillhouse/kubeflow/pods/task.py"
    below = [path for path in own_modules().values() if path not in (ROOT / FACE, first) and layer(path) > above]
    assert len(below) > 100 and not [path for path in below if steps(path, "kfp", top=False)]


def test_no_module_imports_itself_through_others() -> None:
    """Imports at the top, in functions and for types all count."""
    names = own_modules()
    graph = {name: {_module(found, names) for found in imports(path)} - {name, ""} for name, path in names.items()}
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the cycle


def _module(imported: str, names: Container[str]) -> str:
    """The module of this package that an imported name belongs to, or "" for other packages."""
    words = imported.split(".")
    return next((found for end in range(len(words), 0, -1) if (found := ".".join(words[:end])) in names), "")


def test_steps_import_no_platform() -> None:
    for path in modules("stillhouse/pipeline/steps"):
        wrong = [name for name in imports(path) if within(name, PLATFORM)]
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


@pytest.mark.parametrize("folder", CHEAP)
def test_what_commands_and_pods_import_first_is_cheap(folder: str) -> None:
    for path in modules(folder):
        if folder in LAYERS and LAYERS[layer(path)] != folder:
            continue
        wrong = [name for name in imports(path, top=True) if within(name, HEAVY | PLATFORM)]
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong} at its top"


def test_libraries_that_compute_are_in_the_environment() -> None:
    """Otherwise vectors and unfinished work of another version would be used."""
    computing = (path for part in (*SCIENCE, "pipeline/steps") for path in modules(f"stillhouse/{part}"))
    imported = {name.split(".")[0] for path in computing for name in imports(path)}
    packages = imported - sys.stdlib_module_names - {"stillhouse"}
    names = packages_distributions()
    installed = {build: name for name, builds in BUILDS.items() for build in builds}
    # A package that no extra of these tests installs keeps its own name.
    found = {installed.get(name, name) for package in packages for name in names.get(package, [package])}
    known = {spelled(name) for name in (*LIBRARIES, *NOT_COUNTED)}
    assert "safetensors" in found and not {name for name in found if spelled(name) not in known}


def spelled(distribution: str) -> str:
    return distribution.lower().replace("_", "-")
