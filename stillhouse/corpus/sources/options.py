"""The options of a reader, and the built-in sample. Cheap to import, since the command line uses it."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

SAMPLE = "sample"
"""The name of the built-in sample as a source, even if there is a folder of this name."""
AUTO = "auto"
REQA_SPLITS = ("80/20", "10/90", "5/95", "1/99")


def sample_folder() -> Path:
    """The folder of the built-in sample inside the installed package."""
    return Path(str(resources.files("stillhouse") / SAMPLE))


@dataclass(frozen=True, kw_only=True)
class Options:
    """The same names and defaults as in the settings of `ingest`, which explain each."""

    columns: Mapping[str, str] | None = None
    fields: tuple[str, ...] = ()
    reqa_split: str = REQA_SPLITS[0]
