"""The built-in sample: its name as a source, and where it lies. Cheap to import, since the command line reads it."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

SAMPLE = "sample"
"""The source that is the built-in sample, whatever folders there are."""


def sample_folder() -> Path:
    """The folder of the built-in sample inside the installed package."""
    return Path(str(resources.files("stillhouse") / SAMPLE))
