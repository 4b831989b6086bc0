"""The options of a reader besides the location of its source; each field is a setting of `ingest`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

AUTO = "auto"
REQA_SPLITS = ("80/20", "10/90", "5/95", "1/99")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The same names and defaults as in the settings of `ingest`, which explain each."""

    columns: Mapping[str, str] | None = None
    fields: tuple[str, ...] = ()
    reqa_split: str = REQA_SPLITS[0]
