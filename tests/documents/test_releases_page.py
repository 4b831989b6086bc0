"""The commands of docs/releases.md in their order: a first release, the next, a rollback, a checkout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from documented_commands import section
from repositories import call
from served_commands import Served
from small_workspaces import make_small, write_corpus
from terminal import Terminal

PAGE = "docs/releases.md"


@pytest.mark.long
def test_releases_are_made_listed_rolled_back_and_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call(tmp_path, "git", "init", "--quiet", "--bare", "--initial-branch", "main", "releases.git")
    replaced = {
        "https://git.example/search/releases.git": str(tmp_path / "releases.git"),
        "s3://bucket/search": str(tmp_path / "storage"),
        "retriever@v1.1.0": "retriever@v2.0.0",
    }
    served = Served(monkeypatch)
    served.terminal = terminal = Terminal(tmp_path, monkeypatch, replaced, {"stillhouse": served}, make_small)
    write_corpus(terminal.home / "articles")
    commands = section(PAGE, "The first release")
    end = [one.text for one in commands].index("stillhouse release promote") + 1
    terminal.type_all(commands[:end])
    assert call(Path(), "git", "tag").split() == ["retriever#champion#1", "retriever@v1.0.0"]
    assert call(Path(), "git", "status", "--porcelain") == ""

    params = yaml.safe_load(Path("params.yaml").read_text())
    params["evaluate"] = (params.get("evaluate") or {}) | {"title": "Another"}
    params["retriever_1"] |= {"seed": 7}
    Path("params.yaml").write_text(yaml.safe_dump(params))
    for text in ("dvc repro", "stillhouse release promote"):
        [command] = [one for one in commands[:end] if one.text == text]
        terminal.type(command)
    said = terminal.type_all(commands[end:])
    served.end()
    assert served.started == [["in-use"]]
    listed = next(text for command, text in said.items() if "release list" in command)
    assert [line.split()[:2] for line in listed.splitlines() if line.startswith("*")] == [["*", "v2.0.0"]]
    assert call(Path(), "git", "tag", "--list", "retriever#champion#*").split()[-1] == "retriever#champion#3"

    call(tmp_path, "git", "clone", "--quiet", "releases.git", "checkout")
    os.chdir(tmp_path / "checkout")
    terminal.type_all(section(PAGE, "What is reused"))
    assert Path("artifacts/best/retriever").is_dir()
