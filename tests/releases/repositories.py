"""Real git repositories with real DVC remotes, in folders and behind servers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.corpus.store import write_tables
from stillhouse.releases.promotion import Candidate, promote

Files = dict[str, str]

PATHS = {"corpus": "artifacts/corpus", "retriever": "artifacts/retriever"}
ACCEPTED = {"accepted": True, "reason": "the challenger is better: 0.9 against 0.5"}


def run_context(**environment: str) -> dict[str, str]:
    """Return the variables for a program of this Python environment, together with `environment`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "DVC_NO_ANALYTICS": "1"} | environment


def call(folder: Path, *words: str, **environment: str) -> str:
    """Run a program of this Python environment in a folder and return its output. A failure shows the output."""
    done = subprocess.run(words, cwd=folder, env=run_context(**environment), capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def dvc(folder: Path, *words: str) -> None:
    """Run a DVC command in this process, which takes a tenth of the time of a new process."""
    from dvc.cli import main

    here = Path.cwd()
    os.chdir(folder)
    try:
        assert main([words[0], "--quiet", *words[1:]]) == 0, f"dvc {' '.join(words)}"
    finally:
        os.chdir(here)


def make_repository(folder: Path, remote: str | Path) -> Path:
    """Create a git repository with DVC, whose data go to `remote` and whose `origin` is a bare one next to it."""
    origin = folder.with_name(f"{folder.name}.git")
    call(folder.parent, "git", "init", "--quiet", "--bare", "--initial-branch", "main", str(origin))
    call(folder.parent, "git", "init", "--quiet", "--initial-branch", "main", str(folder))
    call(folder, "git", "remote", "add", "origin", str(origin))
    dvc(folder, "init")
    dvc(folder, "remote", "add", "--default", "storage", str(remote))
    (folder / ".gitignore").write_text("/artifacts/\n/.stillhouse/\n")
    commit(folder, "Begin")
    return folder


def commit(folder: Path, message: str) -> str:
    """Commit and push all changes, and return the commit."""
    call(folder, "git", "add", "--all")
    call(folder, "git", "commit", "--quiet", "--message", message)
    call(folder, "git", "push", "--quiet", "origin", "HEAD:main")
    return call(folder, "git", "rev-parse", "HEAD").strip()


def write_stages(folder: Path, paths: Mapping[str, str] = PATHS) -> None:
    """Commit a dvc.yaml whose stages make the artifacts, and an empty params.yaml."""
    stages = {name: {"cmd": f"echo {name}", "outs": [path]} for name, path in paths.items()}
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    (folder / "params.yaml").write_text("{}\n")
    commit(folder, "Stages")


def commit_data(folder: Path, name: str, files: Files, message: str) -> str:
    """Add a data folder to DVC, commit and push it, and return the commit."""
    for path, text in files.items():
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(text)
    dvc(folder, "add", name)
    dvc(folder, "push")
    return commit(folder, message)


def make_artifacts(folder: Path, passages: int, weights: str) -> None:
    """Write a corpus of this many passages and a "retriever", as if steps had written them."""
    table = {
        "passage_id": [f"p{n}" for n in range(passages)],
        "title": [""] * passages,
        "text": [f"text {n}" for n in range(passages)],
        "article_id": ["a"] * passages,
        "section": [""] * passages,
        "position": list(range(passages)),
    }
    with whole_folder(folder / PATHS["corpus"]) as staging:
        write_tables(staging, {"passages": table})
        write_manifest(staging, "ingest", {}, {}, {"passages": passages})
    with whole_folder(folder / PATHS["retriever"]) as staging:
        (staging / "weights.txt").write_text(weights)
        write_manifest(staging, "train-retriever", {}, {}, {})


def candidate(folder: Path, passages: int = 3, weights: str = "one", bump: str = "minor") -> Candidate:
    make_artifacts(folder, passages, weights)
    return Candidate(folder, PATHS, bump, f"{passages} passages, weights {weights}", {"level": "test"})


def release(
    folder: Path, passages: int = 3, weights: str = "one", verdict: dict[str, Any] = ACCEPTED, **more: str
) -> Any:
    return promote(candidate(folder, passages, weights, **more), lambda against: verdict, recorded=False)
