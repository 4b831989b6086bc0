"""Writes the files of a `tokens/` folder, one part of the passages at a time.

Shape suffixes: T all tokens end to end, N all passages.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import DTypeLike
from transformers import PreTrainedTokenizerBase

from stillhouse.core.arrays import save_array
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.store import Corpus
from stillhouse.corpus.titles import SPACE, passage_text
from stillhouse.pretraining.array_file import ArrayFile
from stillhouse.pretraining.pairs.structure import article_structure, sentence_structure
from stillhouse.pretraining.tokens import cut

FILES: dict[str, DTypeLike] = {
    "ids": np.int32,
    "word_starts": np.bool_,
    "sentence_starts": np.bool_,
    "offsets": np.int64,
    "title_lengths": np.int32,
}


def open_files(folder: Path, stack: ExitStack) -> dict[str, ArrayFile]:
    """The token-level files, to be written until the stack closes."""
    return {name: stack.enter_context(ArrayFile(folder / f"{name}.npy", kind)) for name, kind in FILES.items()}


def write_tokens(
    folder: Path,
    parts: Iterable[pd.DataFrame],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    language: str,
    titles_as: str = SPACE,
    not_prose: Set[str] = frozenset(),
) -> dict[str, int]:
    """Write the token-level files: `ids`, `word_starts`, `sentence_starts`, `offsets` and `title_lengths`.

    `parts` are consecutive slices of a corpus's passages; `titles_as` says how to read their titles (`TITLES`). The
    tokens of one part are in memory at a time. Returns the counts `passages`, `tokens`, `truncated` and `sentences`
    (without titles). A passage in `not_prose` is one sentence; `parts` then include passage ids.
    """
    truncated = sentences = 0
    with ExitStack() as stack:
        ids, word_starts, sentence_starts, offsets, titles = open_files(folder, stack).values()
        offsets.append(np.zeros(1, np.int64))
        for part in parts:
            title, text = part["title"].tolist(), part["text"].tolist()
            tokens = cut(tokenizer, [passage_text(*both, titles_as) for both in zip(title, text)], max_length)
            prose = ~part["passage_id"].isin(not_prose) if not_prose else repeat(True)
            starts_T, title_lengths_N = sentence_structure(
                tokens.ends, tokens.offsets, title, text, language, titles_as, prose
            )
            offsets.append(tokens.offsets[1:] + ids.length)
            ids.append(tokens.ids)
            word_starts.append(tokens.word_starts)
            sentence_starts.append(starts_T)
            titles.append(title_lengths_N)
            truncated += tokens.truncated
            sentences += int(starts_T.sum()) - int((title_lengths_N > 0).sum())
    return {"passages": titles.length, "tokens": ids.length, "truncated": truncated, "sentences": sentences}


@doing("writing the structure of passages")
def write_structure(folder: Path, corpus: Corpus) -> dict[str, int]:
    """Write the passage-level files `article`, `lead` and `links`. Returns the counts `articles` and `article_links`.

    A passage that is not prose never counts as part of a first section, the source of queries.
    """
    blocks = corpus.passage_blocks("article_id", "section", "position")
    article_N, lead_N, links_M2 = article_structure(blocks, corpus.links)
    if corpus.not_prose:
        lead_N[corpus.rows_of(corpus.not_prose)] = False
    save_array(folder / "article.npy", article_N)
    save_array(folder / "lead.npy", lead_N)
    save_array(folder / "links.npy", links_M2)
    return {"articles": int(article_N.max(initial=-1)) + 1, "article_links": len(links_M2)}
