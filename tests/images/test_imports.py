"""Everything that the code of an image imports is in the image's locks."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from test_locks import lock

ROOT = Path(__file__).resolve().parents[2]
OWN = ("stillhouse",)
PIPELINES, COMPONENTS = "stillhouse/kubeflow/pipelines", "stillhouse/components"
LEFT_OUT = {
    "lancedb": "a folder of one's own machine, or of a bucket, which needs no service",
    "ir_datasets": "fetches from the network what it reads",
    "optuna": "searches on one's own machine",
    "ray": "an image for corpora beyond a machine adds it (docs/large-corpora.md)",
}
"""Packages that no image has, with the reason."""
ONE_OF = {"faiss": {"cpu": "faiss-cpu", "gpu": "faiss-gpu"}}


def imported(path: Path, *, lazy: bool) -> Iterator[str]:
    """Yield the modules that a file imports. `lazy` includes imports in functions, except in components."""
    yield from _imports(ast.parse(path.read_text(encoding="utf-8")), lazy)


def _imports(node: ast.AST, lazy: bool) -> Iterator[str]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.Import):
            yield from (alias.name for alias in inner.names)
        elif isinstance(inner, ast.ImportFrom):
            yield from (f"{inner.module}.{alias.name}" for alias in inner.names)
        elif _is_for_types(inner) or (isinstance(inner, ast.FunctionDef) and (not lazy or _is_component(inner))):
            continue
        else:
            yield from _imports(inner, lazy)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _is_component(node: ast.FunctionDef) -> bool:
    return any("dsl.component" in ast.unparse(decorator) for decorator in node.decorator_list)


def own_file(module: str) -> Path | None:
    """Return the file of one of the project's own modules. For a name inside a module, return the module's file."""
    while module:
        for path in (ROOT / f"{module.replace('.', '/')}.py", ROOT / module.replace(".", "/") / "__init__.py"):
            if path.is_file():
                return path
        module = module.rpartition(".")[0]
    return None


def foreign(modules: Iterator[str]) -> set[str]:
    """Return the third-party packages: neither the standard library's nor the project's own."""
    return {name.split(".")[0] for name in modules} - set(sys.stdlib_module_names) - set(OWN)


def locked(package: str, locks: tuple[str, ...]) -> bool:
    held = {name for one in locks for name in packages_of(one)}
    known = ONE_OF.get(package, {}).get(locks[0])
    return bool(held & {canonicalize_name(name) for name in ([known] if known else distributions()[package])})


@cache
def packages_of(name: str) -> set[str]:
    return set(lock(name))


@cache
def distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())


@cache
def imported_by_steps() -> set[str]:
    """Return the packages that anything but compiling and submitting imports."""
    submitting = (ROOT / PIPELINES, ROOT / "stillhouse" / "cli" / "pipeline.py")
    files = [path for path in (ROOT / "stillhouse").rglob("*.py") if not {path, *path.parents} & set(submitting)]
    return {name for path in files for name in foreign(imported(path, lazy=True))} - set(LEFT_OUT)


@pytest.mark.parametrize("variant", ["cpu", pytest.param("gpu", marks=pytest.mark.long)])
def test_the_steps_find_what_they_import(variant: str) -> None:
    wanted = imported_by_steps()
    assert len(wanted) > 15
    assert not [name for name in sorted(wanted) if not locked(name, (variant, "alone"))]


def test_the_operations_side_finds_what_it_imports() -> None:
    """Start from the modules of components and pipelines, and follow the imports of the project's own modules."""
    waiting = [path for folder in (COMPONENTS, PIPELINES) for path in (ROOT / folder).rglob("*.py")]
    seen: set[Path] = set()
    wanted: dict[str, str] = {}
    while waiting:
        path = waiting.pop()
        place = path.relative_to(ROOT).as_posix()
        if path in seen:
            continue
        seen.add(path)
        found = list(imported(path, lazy=place.startswith(f"{PIPELINES}/")))
        wanted |= dict.fromkeys(foreign(iter(found)) - set(LEFT_OUT), place)
        waiting += filter(None, (own_file(name) for name in found if name.split(".")[0] in OWN))
    assert {"kfp", "yaml"} <= wanted.keys()
    assert len(seen) > 40
    assert not {name: place for name, place in wanted.items() if not locked(name, ("ops",))}
