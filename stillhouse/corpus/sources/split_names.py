"""Recognises splits by name, and renames the splits of a source."""

import dataclasses
import re
from collections.abc import Mapping

from stillhouse.core.errors import InputError
from stillhouse.corpus.schemas import SPLITS
from stillhouse.corpus.sources.rows import Answer, Each, Part, Qrel, Row, Source

_WORD = re.compile(r"(?<![a-z])(?:doc)?(train|dev|validation|valid|val|test)(?![a-z])")


def split_in(name: str) -> str | None:
    """The split that the name of a file or dataset contains, or None.

    The first of the words train, dev, validation (valid, val) and test counts. No other letter may touch it, except the
    `doc` of MS MARCO's files: `train-v1.1.json`, `nq-dev.qa.csv`, `msmarco-doctrain-qrels.tsv`.
    """
    found = _WORD.search(name.lower())
    if found is None:
        return None
    return found.group(1) if found.group(1) in SPLITS else "dev"


def check_splits(names: Mapping[str, str]) -> Mapping[str, str]:
    """Checks a mapping from old to new names of splits. Raises `InputError` for a name that is not a split."""
    for old, new in names.items():
        if old not in SPLITS or new not in SPLITS:
            raise InputError(
                f"splits: {old!r}: {new!r} does not name splits; write, for instance, {{dev: test}} (with train, dev, "
                "test)"
            )
    return names


def with_splits(source: Source, names: Mapping[str, str]) -> Source:
    """The source with its splits renamed; a split that is not in `names` keeps its name.

    When the rows are read, raises `InputError` if two splits of the source would become one, since their metrics would
    be mixed.
    """
    if not names:
        return source

    def parts(size: int, each: Each) -> list[Part]:
        was: dict[str, str] = {}

        def renamed(row: Row) -> Row:
            if not isinstance(row, (Qrel, Answer)) or row.split not in SPLITS:
                return row
            old, new = row.split, names.get(row.split, row.split)
            if was.setdefault(new, old) != old:
                raise InputError(
                    f"splits: the source's {was[new]} and {old} would both become {new}; give each its own name, "
                    "or read the files of one from a folder without the others"
                )
            return row._replace(split=new)

        return [part.then(renamed) for part in source.parts(size, each)]

    return dataclasses.replace(source, parts=parts)
