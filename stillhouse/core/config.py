"""Settings: small dataclasses that are filled from YAML files, command-line flags or Kubeflow parameters.

The settings of a step are a keyword-only dataclass in which every field has a help text. A field is a `bool`, `int`,
`float` or `str`, one of these or null, a list of them, or a mapping of strings (`setting_kinds.py`):

    @dataclass(frozen=True, kw_only=True)
    class Config:
        depth: int = setting(200, "how many passages BM25 returns for a query", minimum=1)
        pooling: str = setting("cls", "how token states become one vector", choices=("cls", "mean"))

Cross-field rules go into `__post_init__` and raise `InputError`. A recipe (`params.yaml`) maps each use of a step to
the fields that it changes; all other fields keep their defaults.
"""

import dataclasses
import difflib
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from stillhouse.core.errors import InputError
from stillhouse.core.setting_kinds import NAMES, check_type, from_form, plain
from stillhouse.core.yaml_file import read_yaml, shown

C = TypeVar("C")


def setting(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    location: bool = False,
    required: bool = False,
) -> Any:
    """One field of a settings dataclass.

    `location` marks a path: it says where something is, not what it is, so manifests record the digest of its content
    instead. `required` marks a field without a usable default, for forms.
    """
    metadata = {
        "help": help,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "location": location,
        "required": required,
    }
    return dataclasses.field(default=default, metadata=metadata)


def same_setting(cls: type, name: str) -> Any:
    """A field with the default, help and range that another settings dataclass gives it."""
    [found] = [field for field in dataclasses.fields(cls) if field.name == name]
    return dataclasses.field(default=found.default, metadata=found.metadata)


def field_types(cls: type) -> dict[str, Any]:
    """The name and type of every field of a settings dataclass, in order; `setting_kinds.kind_of` reads a type."""
    hints = _hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


@cache
def _hints(cls: type) -> dict[str, Any]:
    """A class's annotations, cached because every call evaluates them anew."""
    return get_type_hints(cls)


def nearest(word: str, words: Collection[str]) -> str:
    """A hint: the closest valid word, or all of them if none is close."""
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"valid: {', '.join(sorted(words)) or 'none'}"


def refuse_unknown(name: Any, known: Iterable[str], what: str) -> None:
    """Raises `InputError`, which begins with `what` and names the nearest, for a name that is not among the `known`."""
    known = list(known)
    if name not in known:
        raise InputError(f"{what} {shown(name)}; {nearest(str(name), known)}")


def build(cls: type[C], values: Mapping[str, Any], where: str) -> C:
    """Fills a settings dataclass from a mapping.

    `where` names the place in error messages, for instance `params.yaml: retriever_1`.
    Raises `InputError` for an unknown key, a value of the wrong type, or a value outside its choices or range.
    """
    rules = {field.name: field.metadata for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    return _fill(cls, values, where, lambda name, kind, value: check_value(value, kind, rules[name], f"{where}.{name}"))


def _fill(cls: type[C], values: Mapping[str, Any], where: str, read: Callable[[str, Any, Any], Any]) -> C:
    """A dataclass of these values; `read` checks each, and gets its field's name and type too."""
    hints = field_types(cls)
    for name in values:
        refuse_unknown(name, hints, f"{where}: unknown setting")
    made = {name: read(name, hints[name], value) for name, value in values.items()}
    missing = [
        field.name
        for field in dataclasses.fields(cls)  # type: ignore[arg-type]
        if field.name not in made and field.default is field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise InputError(f"{where} lacks {', '.join(missing)}")
    try:
        return cls(**made)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def from_forms(cls: type[C], values: Mapping[str, Any], where: str) -> C:
    """Make the settings of a run form: those of `values` that the class has, as Kubeflow hands them over."""
    types = field_types(cls)
    chosen = {name: from_form(values[name], types[name], f"{where}.{name}") for name in types if name in values}
    return build(cls, chosen, where)


def check_value(value: Any, kind: Any, rules: Mapping[str, Any], where: str) -> Any:
    """Checks a value against its field's type, choices and range; `rules` is the field's metadata.

    Raises `InputError` for an invalid value.
    """
    value = check_type(value, kind, where)
    low, high = rules.get("minimum"), rules.get("maximum")
    for part in value if isinstance(value, tuple) else (value,):
        if part is None or isinstance(part, Mapping):
            continue
        if rules.get("choices") and part not in rules["choices"]:
            raise InputError(f"{where} is {shown(part)}; {nearest(str(part), rules['choices'])}")
        if (low is not None and part < low) or (high is not None and part > high):
            some = f"at least {low}" if high is None else f"at most {high}" if low is None else f"from {low} to {high}"
            raise InputError(f"{where} must be {some}, not {part}")
    return value


def recorded(config: Any) -> dict[str, Any]:
    """The settings as a manifest records them: all fields except locations."""
    return {
        field.name: plain(getattr(config, field.name))
        for field in dataclasses.fields(config)
        if not field.metadata.get("location")
    }


GRAPH = "graph"
"""The key of a recipe that names its graph; all others are sections."""


def read_recipe(path: Path) -> dict[str, dict[str, Any]]:
    """Reads a recipe: one mapping per section, and the name of its graph.

    Raises `InputError` for invalid YAML.
    """
    if not path.is_file():
        raise InputError(f"{path} does not exist; `stillhouse new FOLDER` makes a folder with one")
    content = read_yaml(path)
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise InputError(f"{path} must map each section to its settings")
    for name, values in content.items():
        if values is not None and not isinstance(values, dict) and name != GRAPH:
            raise InputError(f"{path}: section {shown(name)} must map settings to values, not {shown(values)}")
    return {name: values if name == GRAPH else dict(values or {}) for name, values in content.items()}


def refuse_unknown_sections(recipe: Mapping[Any, Any], sections: Collection[str], where: str) -> None:
    """Raises `InputError` for a section of a recipe that is not among `sections`."""
    for name in recipe:
        refuse_unknown(name, sections, f"{where}: unknown section")


def read_as(cls: type[C], values: Any, where: str) -> C:
    """Make a dataclass of what a file says: mappings become dataclasses, lists tuples, and values must fit their types.

    Raises `InputError`, which names the place, for an unknown key, a value of another type, and one that is missing.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{where} must map settings to values, not {shown(values)}")
    return _fill(cls, values, where, lambda name, kind, value: _read_value(kind, value, f"{where}: {name}"))


def _read_value(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if get_origin(kind) is types.UnionType:
        kinds = get_args(kind)
        if value is None and type(None) in kinds:
            return None
        return value if type(value) in kinds else _read_value(kinds[0], value, where)
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        return read_as(kind, value, where)
    if get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            raise InputError(f"{where} must be a list, not {shown(value)}")
        return tuple(_read_value(get_args(kind)[0], entry, f"{where}[{number}]") for number, entry in enumerate(value))
    if get_origin(kind) is not None:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise InputError(f"{where} must map text to values, not {shown(value)}")
        return {key: _read_value(get_args(kind)[1], entry, f"{where}: {key}") for key, entry in value.items()}
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise InputError(f"{where} must be {NAMES[kind]}, not {shown(value)}{'; put it in quotes' * (kind is str)}")
    return value
