"""A corpus that tries to run code when a page made from it is opened: every page shows its texts as text.

Pages are checked twice: as HTML and, if Debian's Chromium is installed, in a real browser. Markdown of tasks is
rendered, including HTML in it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from beir_source import write_beir
from shown_page import Page

from stillhouse import cli
from stillhouse.core.errors import ValidationFailed
from stillhouse.core.pages import as_text
from stillhouse.kubeflow.pods.run_control import end_run
from stillhouse.kubeflow.pods.stage import page as stage_page
from stillhouse.pipeline.graph_steps import GraphStep, Stage
from stillhouse.pipeline.steps.spec import Report

CHROMIUM = shutil.which("chromium") or ""
TRAP = """<script>document.title='caught'</script><img src=x onerror="document.title='caught'">"""
SPACELESS = "<script>document.title='caught'</script>"
"""An id may not hold white space."""
BROKEN_OUT = f"""']]>--></style></title></svg></td>{TRAP}"""
COLOURS, ANIMALS = ("red", "green", "blue"), ("bird", "fish", "tree", "stone")
PAGES = ("validate", "evaluate", "zero-shot", "stage")
SHOWING = ("evaluate", "zero-shot")
"""Pages that show whole texts; the others count rows or show word pieces."""


def beir(folder: Path) -> Path:
    """Twelve passages, each with a query in every split; texts, titles, ids and a row to be rejected hold the trap."""
    texts = [f"{BROKEN_OUT} the {colour} {animal} sings" for colour in COLOURS for animal in ANIMALS]
    passages = [{"_id": f"p{i}{SPACELESS}", "title": f"{BROKEN_OUT} {i}", "text": text} for i, text in enumerate(texts)]
    passages.append({"_id": f"empty{SPACELESS}", "title": "", "text": ""})
    ids = {s: [f"{s}{i}{SPACELESS}" for i in range(len(texts))] for s in ("train", "dev", "test")}
    asked = {id: f"{BROKEN_OUT} {split} {i}?" for split in ids for i, id in enumerate(ids[split])}
    judged = {split: [(id, f"p{i}{SPACELESS}") for i, id in enumerate(ids[split])] for split in ids}
    return write_beir(folder, passages, asked, **judged)


@pytest.fixture(scope="module")
def pages(
    tmp_path_factory: pytest.TempPathFactory, runs_of_steps: Callable[[Path], Callable[..., dict[str, Path]]]
) -> dict[str, Path]:
    """Every page that shows a corpus, by the command that makes it."""
    root = tmp_path_factory.mktemp("hostile")
    source = beir(root / "source")
    run = runs_of_steps(root)
    corpus = run("ingest", {}, source=str(source))["corpus"]
    with pytest.raises(ValidationFailed):  # a page that says what was rejected
        run("validate", {"corpus": corpus}, max_rejected_fraction=0.0)
    bm25 = run("bm25", {"corpus": corpus}, depth=5)["run"]
    few = {"bootstrap_samples": 100, "randomisation_samples": 100, "title": BROKEN_OUT}
    evaluation = run("evaluate", {"corpus": corpus, "run/bm25": bm25}, **few)["evaluation"]
    words = ["zero-shot", str(source), "--folder", str(root / "out"), "--depth", "5", "--measures", "RR@5"]
    words += ["--bootstrap-samples", "100", "--randomisation-samples", "100", "--max-rejected", "1", "--quiet"]
    words += ["--title", BROKEN_OUT]
    assert cli.main(words) == 0
    report = Report(BROKEN_OUT, {BROKEN_OUT: 0.5}, html="report.html")
    stage = Stage("evaluation", (GraphStep("evaluate", "evaluate"),))
    (root / "stage.html").write_text(stage_page(stage, {"evaluate": report}, root), encoding="utf-8")
    found = (
        root / "validate" / "validation" / "report.html",
        evaluation / "report.html",
        root / "out" / "zero_shot.html",
        root / "stage.html",
    )
    return dict(zip(PAGES, found, strict=True))


@pytest.mark.parametrize("page", PAGES)
def test_nothing_of_a_corpus_runs_in_a_page(page: str, pages: dict[str, Path]) -> None:
    tags = Page(pages[page].read_text(encoding="utf-8")).tags
    assert not [tag for tag, attributes in tags if tag == "script" or any(name.startswith("on") for name in attributes)]


@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed; `make test-tools` installs it on Debian")
@pytest.mark.parametrize("page", PAGES)
def test_a_browser_runs_nothing_that_a_corpus_says(page: str, pages: dict[str, Path], tmp_path: Path) -> None:
    text = pages[page].read_text(encoding="utf-8")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    seen = in_browser(tmp_path / "page.html")
    assert "<title>caught" not in seen and "<title>" in seen
    assert page not in SHOWING or "&lt;script&gt;document.title" in seen
    # The browser does run a script that is really there.
    (tmp_path / "page.html").write_text(text.replace("</body>", f"{TRAP}</body>"), encoding="utf-8")
    assert "<title>caught" in in_browser(tmp_path / "page.html")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("of 3 passages, RR@10 0.25 (v1.2.0): so-so!", "of 3 passages, RR@10 0.25 (v1.2.0): so-so!"),
        ("<script>a</script>", "&lt;script&gt;a&lt;/script&gt;"),
        ("a | `b`\n[c](d)", r"a \| \`b\` \[c\](d)"),
        ("2. b", r"2\. b"),
        ("", ""),
    ],
)
def test_text_is_escaped_in_markdown(text: str, expected: str) -> None:
    assert as_text(text) == expected


def test_the_end_of_a_run_shows_no_password(tmp_path: Path) -> None:
    said = "clone of https://bob:hush@localhost/x?token=hush failed"
    artifacts = {name: SimpleNamespace(path=tmp_path / name, log_metric=print) for name in ("summary", "metrics")}
    status = SimpleNamespace(state="FAILED", error_message=said)
    end_run({"pipeline": "train", "run": "run-1", "status": status} | artifacts)
    text = (tmp_path / "summary").read_text(encoding="utf-8")
    assert "clone of" in text and "hush" not in text


def in_browser(page: Path) -> str:
    """The document of a page after a browser has opened it."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    options += ["--disable-component-update", "--disable-sync", f"--user-data-dir={page.parent / 'browser'}"]
    command = [CHROMIUM, *options, "--dump-dom", page.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
