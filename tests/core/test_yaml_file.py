"""YAML is read as plain data or refused in one sentence: duplicate keys, invalid values, any text at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillhouse.core.config import GRAPH
from stillhouse.core.errors import InputError
from stillhouse.core.yaml_file import parse_yaml, read_yaml
from stillhouse.experiments.comparison.sweep import read_sweep
from stillhouse.experiments.comparison.sweeps import sweep_of_flags
from stillhouse.kubeflow.pipelines.schedules.file import read_schedules
from stillhouse.pipeline.recipes import configs, find_recipe, load_recipe


@pytest.mark.parametrize(
    ("text", "logged"),
    [
        ("index: {kind: flat}\nmine: {}\nindex: {}\n", "line 3: 'index' is already in line 1; keep one of the"),
        ("index:\n  kind: flat\n  kind: hnsw\n", "line 3: 'kind' is already in line 2"),
        ("a: [{x: 1, 'x': 2}]", "line 1: 'x' is already in line 1"),
        ("1: a\n0x1: b\n", "line 2: 1 is already in line 1"),
        ("a: &a {x: 1}\nb:\n  <<: *a\n  <<: *a\n", "line 4: '<<' is already in line 3"),
        ("a: &a {x: 1, x: 2}\nb: {<<: *a}\n", "line 1: 'x' is already in line 1"),
        ("a: 2026-02-30\n", "is not a YAML file in UTF-8: day is out of range for month"),
        ("a: !!int abc\n", "is not a YAML file in UTF-8: invalid literal for int()"),
        ("[" * 5000, "nested too deeply"),
        ("a: " + "{a: " * 5000, "nested too deeply"),
        ("a: !!python/object/apply:os.getcwd []\n", "line 1: could not determine a constructor"),
        ("a: *nobody\n", "line 1: found undefined alias 'nobody'"),
        ("a: 1\n---\nb: 2\n", "line 2: but found another document"),
        ("a: \0", "unacceptable character"),
        ("? [a]\n: b\n", "line 1: found unhashable key"),
    ],
)
def test_yaml_that_is_not_plain_data_is_refused_in_a_sentence(text: str, logged: str, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_yaml(path)
    assert logged in str(error.value) and str(path) in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < len(str(path)) + 200


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n", {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}}),
        ("a: &a {x: 1}\nb: &b {<<: *a, x: 2}\nc: {<<: *b}\n", {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 2}}),
        ("c: {<<: &b {<<: {x: 1}, x: 2}}\nd: *b\n", {"c": {"x": 2}, "d": {"x": 2}}),
        ("a: &a {x: 1}\nb: &b {y: 1}\nc: {<<: [*a, *b]}\n", {"a": {"x": 1}, "b": {"y": 1}, "c": {"x": 1, "y": 1}}),
        ("a: &a [1, 2]\nb: *a\n", {"a": [1, 2], "b": [1, 2]}),
        ("a: {x: 1}\nb: {x: 1}\n1: a\n'1': b\n", {"a": {"x": 1}, "b": {"x": 1}, 1: "a", "1": "b"}),
        ("", None),
    ],
)
def test_anchors_and_merge_keys_may_be_used(text: str, content: object) -> None:
    assert parse_yaml(text, "here") == content


@pytest.mark.parametrize(
    "value", ["[" + "x, " * 9_000 + "]", "x" * 9_000, "{" + "x: {" * 9 + "}" * 9 + "}", "9" * 4_000]
)
def test_a_message_shortens_a_long_value(value: str, tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    for text in (
        f"retriever_1: {value}",
        f"retriever_1: {{epochs: {value}}}",
        f"retriever_1: {{? {value} : 1}}",
        f"{{? {value} : 1}}",
    ):
        path.write_text(text)
        try:
            found = configs(load_recipe(path), str(path))
        except InputError as error:
            assert len(str(error)) < len(str(path)) + 1000
        else:
            raise AssertionError(found)


def test_every_reader_of_settings_refuses_duplicate_keys(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("title: a\ntitle: b\n")
    for read in (read_sweep, read_schedules, load_recipe):
        with pytest.raises(InputError, match=r"twice.yaml, line 2: 'title' is already in line 1"):
            read(path)
    with pytest.raises(InputError, match=r"--vary pretraining.epochs is not YAML: day is out of range"):
        sweep_of_flags("", ["pretraining.epochs=2026-02-30"], "flags")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_yaml(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_yaml(tmp_path / "nothing")


@st.composite
def damaged_recipes(draw: st.DrawFn) -> str:
    """A shipped recipe with some pieces replaced by other pieces or by characters that have a meaning in YAML."""
    text = find_recipe("micro").read_text(encoding="utf-8")
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 30)))
        of = draw(st.integers(0, len(text)))
        piece = st.text("&*!<>|:?-[]{}#'\"\\%@`,=~0x_.e \t\n", max_size=12) | st.just(text[of : of + 40]) | st.text()
        text = text[:start] + draw(piece) + text[end:]
    return text


@given(text=st.text() | st.text("&*!<>|:?-[]{}#'\"\\%@,=~0x.e1ab \n") | damaged_recipes())
def test_any_text_is_a_mapping_or_refused_in_a_sentence(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        content = load_recipe(path)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(content, dict)
        assert all(isinstance(values, dict) for name, values in content.items() if name != GRAPH)
