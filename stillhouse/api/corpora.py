"""A corpus from files, or from texts and dicts in memory."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import tempfile
from collections.abc import Iterable

from stillhouse.api.results import Folder, StepResult
from stillhouse.api.step_function import Setting, run_step, runs, settings_of
from stillhouse.api.tables import PassageRow, QuestionRow, write_rows
from stillhouse.errors import InputError
from stillhouse.steps import generate_queries as generate_queries_step
from stillhouse.steps import ingest as ingest_step
from stillhouse.steps import validate as validate_step

NOT_PASSAGES = ("source", "format")
"""Settings of `ingest` that say where passages come from."""


@runs(ingest_step.STEP)
def ingest(source: Folder, output: Folder, *, generated: Folder | None = None, **settings: Setting) -> StepResult:
    """Read passages, and queries with their relevant passages, into `output/corpus`.

    `source` is a folder or file in one of the formats of docs/reference/formats.md (BEIR, JSONL, Markdown, HTML, CSV,
    Parquet, …), `sample` for the built-in sample, or `ir_datasets:<id>`. If it has no train queries, they are made from
    its sentences. `generated` is the output of `generate_queries` for the same passages. Unusable rows are counted in
    `facts["rejected"]` and listed with the reason in `rejected.parquet`.

        corpus = stillhouse.ingest("articles/", "work")

    Raises `InputError` for a source that is missing, empty, damaged or in an unknown format.
    """


@settings_of(ingest_step.STEP, but=NOT_PASSAGES)
def ingest_passages(
    passages: Iterable[str | PassageRow],
    output: Folder,
    *,
    questions: Iterable[QuestionRow] = (),
    **settings: Setting,
) -> StepResult:
    """Make `output/corpus` from texts or dicts in memory.

    A passage is its text, or a dict with `text` and optionally `id` (default: its number from 0), `title`, `article_id`
    (default: its own id), `section` and `position` in the article (default: the order here). Passages of one article
    should share their `article_id`: if there are no train questions, they are made from an article's sentences.

    A question is a dict with `text`, `relevant` (the ids of passages that answer it, or a dict of id → grade, with
    integer grades above 0) and optionally `split` (`train`, `dev` or `test`; default: `train`) and `id` (default: its
    number). If no question is in `dev`, a share of the train questions moves there (`dev_fraction`).

        passages = ["Bats hunt at night.", {"id": "owl", "text": "Owls hear mice."}]
        questions = [{"text": "who hears mice", "relevant": ["owl"]}]
        corpus = stillhouse.ingest_passages(passages, "work", questions=questions)

    `settings` are those of `ingest` but for `source` and `format`. Raises `InputError` for these two, for a row with
    an unknown or missing key, and for a value of the wrong type.
    """
    for name in NOT_PASSAGES:
        if name in settings:
            raise InputError(f"ingest_passages takes no {name}: it reads the passages given; leave it out")
    with tempfile.TemporaryDirectory(prefix="stillhouse-") as folder:
        write_rows(folder, passages, questions)
        return run_step(
            StepResult,
            ingest_step.STEP,
            "ingest_passages",
            {},
            output,
            {**settings, "source": folder, "format": "tables"},
        )


@runs(validate_step.STEP)
def validate(corpus: Folder, output: Folder, *, encoder: Folder | None = None, **settings: Setting) -> StepResult:
    """Check a corpus against thresholds; the report is `output/validation/report.html`.

    With `encoder`, it counts the passages that this model truncates.
    Raises `ValidationFailed` if the corpus fails one, after the report is written.
    """


@runs(generate_queries_step.STEP)
def generate_queries(
    corpus: Folder,
    output: Folder,
    *,
    bm25: Folder | None = None,
    retriever: Folder | None = None,
    index: Folder | None = None,
    **settings: Setting,
) -> StepResult:
    """Let a chat model write questions that the passages answer into `output/queries`, for `ingest`.

    With `bm25`, or `retriever` and its `index`, a question is kept only if searching for it finds its passage again.
    The server's key is read from `$STILLHOUSE_CHAT_KEY`.
    """
