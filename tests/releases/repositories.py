"""Real git repositories with real DVC remotes, in folders and behind servers."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from stillhouse.artifacts import whole_folder, write_manifest
from stillhouse.corpus.store import write_tables
from stillhouse.releases.promotion import Candidate, promote

Files = dict[str, str]

PATHS = {"corpus": "artifacts/corpus", "retriever": "artifacts/retriever"}
ACCEPTED = {"accepted": True, "reason": "the challenger is better: 0.9 against 0.5"}


def run_context(**environment: str) -> dict[str, str]:
    """The environment of a program of this environment, with `environment` beside it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "DVC_NO_ANALYTICS": "1"} | environment


def call(folder: Path, *words: str, **environment: str) -> str:
    """Runs a program of this environment in a folder; its failure shows what it printed."""
    done = subprocess.run(words, cwd=folder, env=run_context(**environment), capture_output=True, text=True)
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


def repro(folder: Path, target: str, **environment: str) -> tuple[list[str], list[str]]:
    """Stages that `dvc repro --pull` of `target` ran, and those that it restored, but for `environment`."""
    said = call(folder, "dvc", "repro", "--pull", target, STILLHOUSE_QUIET="1", **environment)
    ran = [name for name in re.findall("^Running stage '(.*)'", said, re.MULTILINE) if name != "environment"]
    return ran, re.findall("^Stage '(.*)' is cached", said, re.MULTILINE)


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


def write_stages(folder: Path) -> None:
    """Writes a dvc.yaml whose stages make both artifacts, and a params.yaml with nothing in it."""
    stages = {name: {"cmd": f"echo {name}", "outs": [path]} for name, path in PATHS.items()}
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    (folder / "params.yaml").write_text("{}\n")


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


def make_artifacts(folder: Path, passages: int, weights: str) -> None:
    """A corpus of this many passages and a "retriever", as if steps had written them."""
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
    return Candidate(folder, PATHS, bump, f"{passages} passages, weights {weights}", {"rung": "test"})


def release(
    folder: Path, passages: int = 3, weights: str = "one", verdict: dict[str, Any] = ACCEPTED, **more: str
) -> Any:
    return promote(candidate(folder, passages, weights, **more), lambda against: verdict, recorded=False)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(300):
        with socket.socket() as found:
            if found.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nothing answers at port {port}")
