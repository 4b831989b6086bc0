"""The checks that `images/try` runs inside an image pass for the current code in this environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).resolve().parents[2] / "images" / "checks"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that stands in for the image's volume and holds the checks."""
    shutil.copytree(CHECKS, tmp_path / "checks", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_checks_of_the_operations_image_pass(scratch: Path) -> None:
    checks = (CHECKS / "stillhouse-ops.sh").read_text().replace("/scratch", str(scratch))
    done = subprocess.run(["sh", "-euxc", checks], cwd=scratch, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "articles: unchanged" in done.stdout and "articles: started" in done.stdout
    assert len(list((scratch / "storage").rglob("*"))) > 0


def test_a_compiled_task_runs_in_the_image_of_the_steps(scratch: Path) -> None:
    compiled = CHECKS.parents[1] / "manifests" / "pipelines" / "cpu" / "train.yaml"
    words = [sys.executable, str(CHECKS / "task.py"), str(compiled), "corpus", str(scratch / "task")]
    done = subprocess.run(words, cwd=scratch, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (scratch / "task" / "corpus" / "folder" / "ingest" / "corpus" / "manifest.json").is_file()
