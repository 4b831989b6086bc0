"""A corpus from texts and dicts in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable

from stillhouse.core.errors import InputError
from stillhouse.pipeline.api.results import Folder, StepResult
from stillhouse.pipeline.api.step_function import Setting, run_step, with_settings
from stillhouse.pipeline.api.tables import PassageRow, QuestionRow, write_rows
from stillhouse.pipeline.steps import ingest as ingest_step

NOT_PASSAGES = ("source", "format")
"""Settings of `ingest` that say where passages come from."""


@with_settings(ingest_step.STEP, but=NOT_PASSAGES)
def ingest_passages(
    passages: Iterable[str | PassageRow], output: Folder, *, questions: Iterable[QuestionRow] = (), **settings: Setting
) -> StepResult:
    """Make `output/corpus` from texts or dicts in memory.

    A passage is its text, or a dict with `text` and optionally `id` (default: its number from 0), `title`, `article_id`
    (default: its own id), `section`, `position` in the article (default: the order here) and `fields`, a dict such as
    `{"product": "vpn"}` to filter a search by. Passages of one article should share their `article_id`: if there are no
    train questions, they are made from an article's sentences.

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
        own = {**settings, "source": folder, "format": "tables"}
        return run_step(ingest_step.STEP, "ingest_passages", {"output": output}, own)
