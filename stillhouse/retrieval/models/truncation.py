"""How many passages of a corpus a model reads only in part."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stillhouse.corpus.checks import Truncation
from stillhouse.corpus.store import Corpus, passage_text_blocks
from stillhouse.monitoring.activity import doing
from stillhouse.retrieval.models.encoder_settings import read_settings
from stillhouse.retrieval.models.passage_tokens import cut_passages
from stillhouse.retrieval.models.tokenizer_files import load_tokenizer

COUNTED = 10_000
"""The passages that are tokenized; of a larger corpus, a sample, whose share is within 0.01 of that of all."""
SEED = 0


@doing("counting the passages that the model truncates")
def count_truncated(corpus: Corpus, folder: Path) -> Truncation:
    """The share of passages longer than the `passage_length` of the model in `folder`, by its own tokenizer.

    Raises `InputError` for a folder without a tokenizer.
    """
    settings, tokenizer = read_settings(folder), load_tokenizer(folder)
    rows = None
    if corpus.passage_count > COUNTED:
        rows = np.sort(np.random.default_rng(SEED).choice(corpus.passage_count, COUNTED, replace=False))
    longest = settings.passage_length
    counted = longer = 0
    for texts in passage_text_blocks(corpus, rows):
        # One token more than the model reads is enough to know.
        ids = cut_passages(tokenizer, texts, longest + 1, settings.passage_prompt)
        counted += len(ids)
        longer += sum(len(own) > longest for own in ids)
    return Truncation(longest, longer / max(counted, 1), counted)
