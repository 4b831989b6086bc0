"""A search writes its new values to params.yaml and changes nothing else in it."""

from __future__ import annotations

import difflib

import pytest
import yaml

from stillhouse.errors import InputError
from stillhouse.tuning.params_file import as_lines, with_settings
from stillhouse.workflow.recipes import find_recipe

LABELLED = find_recipe("labelled").read_text(encoding="utf-8")
CASES = [
    ("a:\n  b: 1   # why\n  c: 2\n", {"a.b": 5}, "a:\n  b: 5   # why\n  c: 2\n"),
    ("# first\na: {b: 1, c: 2}  # flow\n", {"a.c": 3}, "# first\na: {b: 1, c: 3}  # flow\n"),
    ("a: {}\n", {"a.b": "0.5"}, "a: {b: '0.5'}\n"),
    ("a: {c: 1}\n", {"a.b": True}, "a: {b: true, c: 1}\n"),
    ("a:\n    c: 1\n", {"a.b": 2.5e-05}, "a:\n    b: 2.5e-5\n    c: 1\n"),
    ("z: {y: 1}\n", {"a.b": 8.0}, "z: {y: 1}\na:\n  b: 8.0\n"),
    ("", {"a.b": 1}, "a:\n  b: 1\n"),
]


@pytest.mark.parametrize(("before", "settings", "after"), CASES)
def test_a_value_is_replaced_and_the_rest_of_the_file_stays(
    before: str, settings: dict[str, object], after: str
) -> None:
    assert with_settings(before, settings, "params.yaml") == (after, settings)  # type: ignore[arg-type]
    for key, value in settings.items():
        section, field = key.split(".")
        assert yaml.safe_load(after)[section][field] == value


def test_settings_inherited_by_a_merge_key_stay_unchanged() -> None:
    """`distilled` takes over the settings of `retriever_1` by `<<: *retriever`."""
    settings = {"retriever_1.learning_rate": 5e-5, "mine_1.relative_margin": 0.02, "averaged.alphas": [0.5]}
    after, edits = with_settings(LABELLED, settings, "labelled.yaml")  # type: ignore[arg-type]
    before, now = yaml.safe_load(LABELLED), yaml.safe_load(after)
    assert now["retriever_1"].pop("learning_rate") == 5e-5 and before["retriever_1"].pop("learning_rate") == 2e-5
    assert now["mine_1"].pop("relative_margin") == 0.02 and now["averaged"].pop("alphas") == [0.5]
    before["averaged"].pop("alphas")
    assert now["distilled"]["learning_rate"] == 2e-5 and edits["distilled.learning_rate"] == 2e-5
    assert now["mine_2"].pop("relative_margin") == 0.05, "which mine_2 had as the default"
    assert now == before
    removed = [line for line in difflib.ndiff(LABELLED.splitlines(), after.splitlines()) if line.startswith("- ")]
    assert [line.split(":")[0].strip("- ") for line in removed] == ["learning_rate", "alphas"], "comments are kept"


def test_a_file_that_cannot_be_edited_is_refused() -> None:
    with pytest.raises(InputError, match=r"set a\.b: 2 by hand"):
        with_settings("a: &x {b: 1}\nc: *x\n", {"a.b": 2}, "params.yaml")


def test_lines_are_those_of_the_file() -> None:
    settings = {"a.rate": 1.5e-05, "b.word": "1", "a.count": 3}
    assert as_lines(settings) == ["a:", "  rate: 1.5e-5", "  count: 3", "b:", "  word: '1'"]
    text = "\n".join(as_lines(settings))
    assert yaml.safe_load(text) == {"a": {"rate": 1.5e-5, "count": 3}, "b": {"word": "1"}}
