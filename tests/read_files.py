"""Files that are read for their digest."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillhouse.core import file_stamps
from stillhouse.core.artifacts import digest_file


def noted_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read from now on; every file counts as old enough to be remembered."""
    names: list[str] = []

    def counted(path: Path) -> str:
        names.append(path.name)
        return digest_file(path)

    monkeypatch.setattr(file_stamps, "digest_file", counted)
    monkeypatch.setattr(file_stamps, "SETTLED", -1.0)
    return names
