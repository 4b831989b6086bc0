"""Settings: what is accepted, what is refused, and the message of a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from stillhouse.core.config import build, field_types, read_recipe, recorded, refuse_unknown_sections, setting
from stillhouse.core.errors import InputError
from stillhouse.core.setting_kinds import as_form, as_text, from_form, from_text


@dataclass(frozen=True, kw_only=True)
class Settings:
    depth: int = setting(200, "how deep", minimum=1)
    rate: float = setting(0.5, "how fast", minimum=0, maximum=1)
    pooling: str = setting("cls", "how", choices=("cls", "mean"))
    free: float = setting(0.5, "how free")
    cased: bool = setting(False, "whether")
    source: str = setting("here", "where", location=True)


def test_a_recipe_changes_what_it_names() -> None:
    assert build(Settings, {"depth": 7}, "here") == Settings(depth=7)


def test_yaml_reads_2e_5_as_text_and_it_is_still_a_number() -> None:
    assert build(Settings, {"rate": "2e-5"}, "here").rate == 2e-5


REFUSED = [
    ({"dept": 3}, "did you mean 'depth'"),
    ({"zzz": 3}, "valid: cased, depth, free, pooling, rate, source"),
    ({"depth": "three"}, "r1.depth must be a whole number, not 'three'"),
    ({"depth": True}, "r1.depth must be a whole number"),
    ({"depth": 1.5}, "r1.depth must be a whole number"),
    ({"depth": 0}, "r1.depth must be at least 1"),
    ({"rate": 1.5}, "r1.rate must be from 0 to 1"),
    ({"rate": "fast"}, "r1.rate must be a number"),
    ({"rate": float("nan")}, "r1.rate must be a finite number, not nan"),
    ({"rate": "nan"}, "r1.rate must be a finite number"),
    ({"free": float("inf")}, "r1.free must be a finite number, not inf"),
    ({"free": "-inf"}, "r1.free must be a finite number"),
    ({"free": "1e999"}, "r1.free must be a finite number"),
    ({"free": 10**400}, "r1.free is larger than any number"),
    ({"pooling": "men"}, "did you mean 'mean'"),
    ({"cased": "yes"}, "r1.cased must be true or false"),
    ({"cased": None}, "r1.cased must be true or false"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_what_is_refused_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        build(Settings, values, "params.yaml: r1")
    assert message in str(error.value) and "params.yaml: r1" in str(error.value)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [("3", int, 3), ("2e-5", float, 2e-5), ("yes", bool, True), ("false", bool, False), ("3", str, "3")],
)
def test_flags_are_read_by_type(text: str, kind: type, value: object) -> None:
    assert from_text(text, kind, "--x") == value and type(from_text(text, kind, "--x")) is kind


@pytest.mark.parametrize(
    ("text", "kind"), [("3.5", int), ("x", float), ("nan", float), ("-inf", float), ("maybe", bool)]
)
def test_ill_typed_flags_are_refused(text: str, kind: type) -> None:
    with pytest.raises(InputError, match="--depth"):
        from_text(text, kind, "--depth")


@pytest.mark.parametrize(
    ("text", "message"), [('["ict", 3]', r"^--x\[1\] must be text, not 3$"), ('["ict", ', "^--x is not valid JSON: ")]
)
def test_json_is_called_invalid_only_if_it_is(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_text(text, tuple[str, ...], "--x")


def test_a_manifest_records_no_location() -> None:
    assert recorded(Settings()) == {"depth": 200, "rate": 0.5, "free": 0.5, "pooling": "cls", "cased": False}


@dataclass(frozen=True, kw_only=True)
class Shaped:
    steps: int | None = setting(None, "how many", minimum=1)
    shares: tuple[float, ...] = setting((0.25, 1.0), "which", minimum=0, maximum=1)
    names: tuple[str, ...] | None = setting(None, "whose", choices=("ict", "bfs"))
    columns: Mapping[str, str] | None = setting(None, "what is called what")


SHAPED = [
    ({}, [], {"steps": None, "shares": [0.25, 1.0], "names": None, "columns": None}),
    (
        {"steps": 3, "shares": [0, 0.5], "names": ["bfs"], "columns": {"text": "body", "id": "nr"}},
        ["3", "0,0.5", "bfs", "text=body,id=nr"],
        {"steps": 3, "shares": [0.0, 0.5], "names": ["bfs"], "columns": {"text": "body", "id": "nr"}},
    ),
    (
        {"steps": None, "shares": [1], "names": ["ict", "bfs"], "columns": {"a": "x, y"}},
        ["null", "[1]", "ict, bfs", '{"a": "x, y"}'],
        {"steps": None, "shares": [1.0], "names": ["ict", "bfs"], "columns": {"a": "x, y"}},
    ),
]


@pytest.mark.parametrize(("values", "flags", "kept"), SHAPED)
def test_null_lists_and_mappings_are_one_thing_in_yaml_flags_and_manifests(
    values: dict[str, object], flags: list[str], kept: dict[str, object]
) -> None:
    config, kinds = build(Shaped, values, "here"), field_types(Shaped)
    given = {name: from_text(text, kinds[name], name) for name, text in zip(kinds, flags)}
    assert build(Shaped, given, "a command line") == config if flags else config == Shaped()
    assert recorded(config) == kept
    again = {name: from_text(as_text(getattr(config, name)), kinds[name], name) for name in kinds}
    assert build(Shaped, again, "another process") == config
    form = {name: from_form(as_form(getattr(config, name), kinds[name]), kinds[name], name) for name in kinds}
    assert build(Shaped, form, "a run form") == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"shares": "0.5+1"}, "must be a list"),
        ({"columns": "text=body id=nr"}, "must be a mapping of texts"),
        ({"steps": [1]}, "a whole number or null"),
        ({"shares": None}, "a list"),
        ({"shares": [2]}, "from 0 to 1, not 2"),
        ({"names": ["icd"]}, "did you mean 'ict'"),
        ({"columns": {"text": 3}}, "columns.text must be text"),
    ],
)
def test_wrong_forms_are_refused_with_the_right_one(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        build(Shaped, values, "here")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"index: [", "not a YAML file"),
        (b"\xff\xfe", "not a YAML file in UTF-8"),
        (b"- a\n", "must map each section"),
        (b"indx: {}\n", "did you mean 'index'"),
        (b"index: 3\n", "must map settings to values"),
    ],
)
def test_a_broken_recipe_is_refused(tmp_path, content: bytes, message: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "params.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        refuse_unknown_sections(read_recipe(path), ["index", "mine"], str(path))
