"""A corpus from files, or from texts and dicts in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable

from stillhouse.api.results import Folder, StepResult
from stillhouse.api.step_function import Setting, run_step, settings_of
from stillhouse.api.tables import PassageRow, QuestionRow, write_rows
from stillhouse.steps import generate_queries as generate_queries_step
from stillhouse.steps import ingest as ingest_step
from stillhouse.steps import validate as validate_step


@settings_of(ingest_step.STEP)
def ingest(source: Folder, output: Folder, *, generated: Folder | None = None, **settings: Setting) -> StepResult:
    """Reads passages, and queries with their relevant passages, into `output/corpus`.

    `source` is a folder or file of any format of docs/formats.md (BEIR, JSONL, Markdown, HTML, CSV, Parquet, …),
    `sample` for the built-in one, or `ir_datasets:<id>`. Where it has no train queries they are made from its
    sentences. `generated` is what `generate_queries` made of the same passages. Rows that cannot be used are counted
    in `facts["rejected"]` and stand with their reason in `rejected.parquet`.

    Raises `InputError` for a source that is missing, empty, damaged or of no known format.
    """
    return run_step(
        StepResult, ingest_step.STEP, "ingest", {"generated": generated}, output, {"source": source, **settings}
    )


@settings_of(ingest_step.STEP)
def ingest_passages(
    passages: Iterable[str | PassageRow],
    output: Folder,
    *,
    questions: Iterable[QuestionRow] = (),
    **settings: Setting,
) -> StepResult:
    """Makes `output/corpus` of texts or dicts in memory.

    A passage is its text, or a dict with `text` and optionally `id` (else its number from 0), `title`, `article_id`
    (else its own id), `section` and `position` in the article (else by the order here). Passages of one article
    should share their `article_id`: where there are no train questions, they are made from an article's sentences.

    A question is a dict with `text`, `relevant` (the ids of passages that answer it, or a dict of id → grade, whole
    numbers above 0) and optionally `split` (`train`, `dev` or `test`; else `train`) and `id` (else its number). Where
    no question is `dev`, a share of the train questions becomes that (`dev_fraction`).

    Raises `InputError` for a row with an unknown or missing key, or a value of the wrong type.
    """
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


@settings_of(validate_step.STEP)
def validate(corpus: Folder, output: Folder, **settings: Setting) -> StepResult:
    """Checks a corpus against thresholds; the page is `output/validation/report.html`.

    Raises `ValidationFailed` where it breaks one, after the page was written.
    """
    return run_step(StepResult, validate_step.STEP, "validate", {"corpus": corpus}, output, settings)


@settings_of(generate_queries_step.STEP)
def generate_queries(
    corpus: Folder,
    output: Folder,
    *,
    bm25: Folder | None = None,
    retriever: Folder | None = None,
    index: Folder | None = None,
    **settings: Setting,
) -> StepResult:
    """Has a chat model ask questions that the passages answer, into `output/queries`, which `ingest` takes.

    With `bm25`, or `retriever` and its `index`, a question stays only if a search with it finds its passage again. The
    server's key is read from `$STILLHOUSE_CHAT_KEY`.
    """
    inputs = {"corpus": corpus, "bm25": bm25, "retriever": retriever, "index": index}
    return run_step(StepResult, generate_queries_step.STEP, "generate_queries", inputs, output, settings)
