"""The built-in sample: its name as a source, and its folder. Cheap to import, since the command line uses it."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

SAMPLE = "sample"
"""The name of the built-in sample as a source, even if there is a folder of this name."""


def sample_folder() -> Path:
    """The folder of the built-in sample inside the installed package."""
    return Path(str(resources.files("stillhouse") / SAMPLE))
