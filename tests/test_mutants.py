"""The table of mutants matches the code: the code that a mutant changes exists, and so do the tests that notice it."""

from __future__ import annotations

import ast

import pytest
from mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_made(mutant: Mutant) -> None:
    text = (ROOT / "stillhouse" / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1 and mutant.new != mutant.old
    ast.parse(text.replace(mutant.old, mutant.new))
    for test in mutant.tests:
        file, _, function = test.partition("::")
        assert f"def {function}" in (ROOT / file).read_text(encoding="utf-8")


def test_names_are_distinct() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
