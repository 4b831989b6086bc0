"""The site: every page, link and anchor of a strict build, which loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from documented_commands import PAGES, ROOT

from stillhouse.cli import COMMANDS
from stillhouse.pipeline.steps.registry import steps


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("material", "mmdr"):
        pytest.importorskip(needed, reason="the site needs the extra `dev`")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    loaded = re.compile(r'<(?:script|img|iframe)[^>]*\ssrc="?(?:https?:)?//|<link[^>]*rel="?stylesheet"?[^>]*https?://')
    assert [page for page in pages if loaded.search(page.read_text(encoding="utf-8"))] == []
    assert len(pages) > 60 and (site / "search/search_index.json").is_file()


def test_diagrams_are_drawn_and_settings_listed(site: Path) -> None:
    architecture = (site / "architecture/index.html").read_text(encoding="utf-8")
    assert "<svg" in architecture.split('class="diagram"')[1] and "flowchart TD" not in architecture
    commands = (site / "reference/commands/index.html").read_text(encoding="utf-8")
    assert all(f"<td>{name}</td>" in commands for name in COMMANDS)
    for name, step in steps().items():
        page = (site / f"reference/settings/{name}-step/index.html").read_text(encoding="utf-8")
        assert all(f"<code>{field}</code>" in page for field in step.config.__dataclass_fields__), name


def test_no_page_is_long_and_all_together_are_short() -> None:
    words = {page: len((ROOT / page).read_text(encoding="utf-8").split()) for page in PAGES if page.startswith("docs/")}
    assert sum(words.values()) <= 25_000
    for page in (ROOT / "benchmarks").glob("*.md"):
        prose = (line for line in page.read_text(encoding="utf-8").splitlines() if not line.startswith("|"))
        words[page.name] = len(" ".join(prose).split())
    assert {page: count for page, count in words.items() if count > 1_800} == {}
