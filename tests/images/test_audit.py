"""The audit of the locks: its output and exit code, with stand-ins for the package index and pip-audit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_server import local_server

AUDIT = Path(__file__).resolve().parents[2] / "images" / "locks" / "audit"
MENDED = {"id": "PYSEC-1", "fix_versions": ["2.0"]}
OPEN = {"id": "PYSEC-2", "fix_versions": []}


@pytest.fixture
def index() -> Iterator[str]:
    """An index that knows setuptools alone."""
    with local_server(
        lambda asked: (200, {"vulnerabilities": []}) if asked.path.startswith("/pypi/setuptools/") else (404, "")
    ) as address:
        yield address


def run(
    tmp_path: Path, index: str, printed: str, complaint: str = "", locks: tuple[str, ...] = ("alone.txt",)
) -> tuple[int, str]:
    """Return the audit's exit code and output. pip-audit prints `printed`, and with a `complaint` it exits with 1."""
    program = tmp_path / "pip-audit"
    end = f"echo '{complaint}' >&2; exit 1\n" if complaint else ""
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{printed}\nEND\n{end}")
    program.chmod(0o755)
    words = [sys.executable, str(AUDIT), str(program), *(str(AUDIT.parent / lock) for lock in locks)]
    done = subprocess.run(words, env={"AUDIT_INDEX": index}, capture_output=True, text=True)
    assert not done.stderr
    return done.returncode, done.stdout


def report(*flaws: dict[str, Any]) -> str:
    packages = [{"name": "one", "version": "1.0", "vulns": list(flaws)}, {"name": "two", "skip_reason": "unknown"}]
    return json.dumps({"dependencies": packages, "fixes": []})


@pytest.mark.parametrize(
    ("flaws", "code", "logged"),
    [
        ((), 0, "1 packages audited, 0 vulnerabilities known"),
        ((OPEN,), 0, "one 1.0: PYSEC-2, not mended yet"),
        ((OPEN, MENDED), 1, "one 1.0: PYSEC-1, mended in 2.0"),
    ],
)
def test_a_vulnerability_with_a_fix_fails(
    tmp_path: Path, index: str, flaws: tuple[dict[str, Any], ...], code: int, logged: str
) -> None:
    ended, said = run(tmp_path, index, report(*flaws))
    assert ended == code
    assert logged in said
    assert "not known to the index: two" in said
