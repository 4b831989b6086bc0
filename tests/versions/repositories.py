"""Real git repositories with real DVC remotes, in folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

Files = dict[str, str]


def call(folder: Path, *words: str, **environment: str) -> str:
    """Runs a program of this environment in a folder; its failure shows what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    surroundings = os.environ | {"PATH": path, "DVC_NO_ANALYTICS": "1"} | environment
    done = subprocess.run(words, cwd=folder, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def dvc(folder: Path, *words: str) -> None:
    """Runs a command of DVC in this process, which takes a tenth of the time of a new one."""
    from dvc.cli import main

    here = Path.cwd()
    os.chdir(folder)
    try:
        assert main([words[0], "--quiet", *words[1:]]) == 0, f"dvc {' '.join(words)}"
    finally:
        os.chdir(here)


def make_repository(folder: Path, remote: str | Path) -> Path:
    """A git repository with DVC in it, whose data go to `remote`, and whose `origin` is a bare one beside it."""
    origin = folder.with_name(f"{folder.name}.git")
    call(folder.parent, "git", "init", "--quiet", "--bare", "--initial-branch", "main", str(origin))
    call(folder.parent, "git", "init", "--quiet", "--initial-branch", "main", str(folder))
    call(folder, "git", "remote", "add", "origin", str(origin))
    dvc(folder, "init")
    dvc(folder, "remote", "add", "--default", "shelf", str(remote))
    (folder / ".gitignore").write_text("/artifacts/\n/.stillhouse/\n")
    call(folder, "git", "add", "--all")
    call(folder, "git", "commit", "--quiet", "--message", "Begin")
    call(folder, "git", "push", "--quiet", "origin", "main")
    return folder


def commit_data(folder: Path, name: str, files: Files, message: str) -> str:
    """Puts a data folder under DVC, commits and pushes it; the commit."""
    for path, text in files.items():
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(text)
    dvc(folder, "add", name)
    dvc(folder, "push")
    call(folder, "git", "add", "--all")
    call(folder, "git", "commit", "--quiet", "--message", message)
    call(folder, "git", "push", "--quiet", "origin", "main")
    return call(folder, "git", "rev-parse", "HEAD").strip()
