"""Checks a cron line as Kubeflow reads it: six fields, each a list of values, ranges and steps within its bounds."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.errors import InputError


@dataclass(frozen=True)
class Field:
    """A field's name and bounds, and the names of its values from the lowest on."""

    name: str
    lowest: int
    highest: int
    words: tuple[str, ...] = ()


MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELDS = (
    Field("seconds", 0, 59),
    Field("minutes", 0, 59),
    Field("hours", 0, 23),
    Field("day of the month", 1, 31),
    Field("month", 1, 12, MONTHS),
    Field("day of the week", 0, 6, DAYS),
)


def refuse_cron(line: str) -> None:
    """Raises `InputError`, which names the wrong field, for a line that Kubeflow would refuse."""
    parts = line.split()
    if len(parts) != len(FIELDS):
        hint = "; put the seconds first, `0 ` before a usual cron line" if len(parts) == 5 else ""
        raise InputError(f"cron {line!r} must have six fields: seconds minutes hours day month weekday{hint}")
    for field, part in zip(FIELDS, parts, strict=True):
        for item in part.split(","):
            if not _fits(item, field):
                hint = "; Sunday is 0" if field.name == "day of the week" and item == "7" else ""
                raise InputError(
                    f"cron {line!r}: {field.name} is {part!r}; write *, or numbers from {field.lowest} to "
                    f"{field.highest} like 1,2-4,*/5{hint}"
                )


def _fits(item: str, field: Field) -> bool:
    value, slash, step = item.partition("/")
    if slash and not (step.isdecimal() and int(step) > 0):
        return False
    if value in ("*", "?"):
        return True
    first, dash, last = value.partition("-")
    begin = _number(first, field)
    end = _number(last, field) if dash else begin
    return field.lowest <= begin <= end <= field.highest


def _number(text: str, field: Field) -> int:
    """The number that a value stands for, or -1, which is below every bound, if it is invalid."""
    if text.lower() in field.words:
        return field.lowest + field.words.index(text.lower())
    return int(text) if text.isdecimal() and text.isascii() else -1
