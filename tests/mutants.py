"""Mutants: small wrong changes to the science that a test has to notice. Not part of `make test`.

    python tests/mutants.py                    all of them, some minutes on one core
    python tests/mutants.py "no weight decay"  some of them, by name

Each mutant is made in a copy of the project, one at a time. The tests that should notice it run there on one thread.
A mutant that survives shows a gap in the tests. Results of whole runs are in `tests/mutants.md`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("stillhouse", "tests", "pyproject.toml")
SECONDS = 300
"""A mutant that makes the tests hang for this long counts as caught too."""
PASSED, FAILED = 0, 1
"""Exit codes of pytest; any other code means that the tests did not run."""


@dataclass(frozen=True)
class Mutant:
    """A row of mutants.yaml."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]


def read_mutants() -> tuple[Mutant, ...]:
    groups = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")).values()
    return tuple(Mutant(name, **of) for group in groups for name, of in group.items())


MUTANTS = read_mutants()


def copy_tree(into: Path) -> None:
    """Copies the parts of the working tree that the tests need, with uncommitted changes."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, into / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, into / name)


def run_tests(tree: Path, tests: Iterable[str]) -> int | None:
    """Return pytest's exit code in a copy of the tree, or None if it took too long."""
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # two mutants of a file may have the same size and second
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        return subprocess.run(words, cwd=tree, env=environment, capture_output=True, timeout=SECONDS).returncode
    except subprocess.TimeoutExpired:
        return None


def verdict(tree: Path, mutant: Mutant) -> str:
    """`caught` or `SURVIVED`; `BROKEN` if the text does not occur once in the file, or the tests did not run."""
    path = tree / "stillhouse" / mutant.file
    whole = path.read_text(encoding="utf-8")
    if whole.count(mutant.old) != 1:
        return "BROKEN"
    path.write_text(whole.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        code = run_tests(tree, mutant.tests)
    finally:
        path.write_text(whole, encoding="utf-8")
    return {PASSED: "SURVIVED", FAILED: "caught", None: "caught"}.get(code, "BROKEN")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="the mutants to try (default: all)")
    names = parser.parse_args().names
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no mutant is called {unknown[0]!r}; there are: {', '.join(known)}")
    chosen = [known[name] for name in names] or list(MUTANTS)
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place)
        copy_tree(tree)
        tests = dict.fromkeys(test for mutant in chosen for test in mutant.tests)
        if run_tests(tree, tests) != PASSED:
            print("the tests fail without any mutant; mend them first")
            return 1
        failed = 0
        for mutant in chosen:
            started = time.monotonic()
            found = verdict(tree, mutant)
            failed += found != "caught"
            print(f"{found:9}{mutant.name}  ({mutant.file}, {time.monotonic() - started:.0f} s)", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} caught")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
