"""The structure of passages that pair tasks use: sentences, titles, articles, first sections and links.

Shape suffixes: T all tokens end to end, N all passages, S sentences, M links.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stillhouse.corpus.digest_numbers import DigestNumbers, digests_of
from stillhouse.corpus.sentences import sentence_spans
from stillhouse.corpus.titles import SPACE, TITLES, read_title

FILES = ("sentence_starts", "title_lengths", "article", "lead", "links")


@dataclass(frozen=True)
class PassageStructure:
    """The structure files of a `tokens/` folder, memory-mapped.

    `sentence_starts` bool [T] is true where a sentence begins; a title counts as a sentence. `title_lengths` int32
    [N]: how many of a passage's first tokens are its title. `article` int32 [N]: the number of a passage's article, or
    -1. `lead` bool [N]: whether a passage is in its article's first section. `links` int32 [M, 2]: the numbers of the
    article with the hyperlink and of its target.
    """

    sentence_starts: NDArray[np.bool_]
    title_lengths: NDArray[np.int32]
    article: NDArray[np.int32]
    lead: NDArray[np.bool_]
    links: NDArray[np.int32]

    @classmethod
    def open(cls, folder: Path) -> PassageStructure | None:
        """The structure in a token folder, or None for a folder written without it."""
        if not all((folder / f"{name}.npy").is_file() for name in FILES):
            return None
        return cls(**{name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in FILES})


def sentence_structure(
    ends_T: NDArray[np.int32],
    offsets: NDArray[np.int64],
    titles: Sequence[str],
    texts: Sequence[str],
    language: str,
    titles_as: str = SPACE,
    prose: Iterable[bool] = repeat(True),
) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """Where sentences begin (bool [T]) and how many tokens are titles (int32 [N]).

    `ends_T` is the position after each token in `passage_text(title, text, titles_as)`; `offsets` int64 [N + 1] are the
    passages' borders. The text that joins title and passage, such as a colon, belongs to the title. A sentence without
    its own token, or in the truncated part, has no start. `prose` tells for each passage whether to split it into
    sentences; otherwise it is a single one.
    """
    lengths_N = np.diff(offsets)
    passage_T = np.repeat(np.arange(len(texts)), lengths_N)
    text_chars_N = np.array([len(read_title(title, titles_as)) for title in titles], dtype=np.int64)
    joint = TITLES[titles_as]
    title_chars_N = np.where(text_chars_N > 0, text_chars_N - len(joint) + len(joint.rstrip()), 0)
    in_title_T = (ends_T <= title_chars_N[passage_T]) & (title_chars_N[passage_T] > 0)
    title_lengths_N = np.bincount(passage_T[in_title_T], minlength=len(texts))
    spans = [sentence_spans(text, language) if of_prose else [(0, len(text))] for text, of_prose in zip(texts, prose)]
    passage_S = np.repeat(np.arange(len(texts)), [len(span) for span in spans])
    begins_S = np.array([begin for span in spans for begin, _ in span], dtype=np.int64)
    begins_S += text_chars_N[passage_S]
    # A sentence's first token is the first that ends after the sentence's first character: in some tokenizers a token
    # includes the white space before its word.
    stride = 1 + max(int(ends_T.max(initial=0)), int(begins_S.max(initial=0)))
    found_S = np.searchsorted(
        np.maximum.accumulate(passage_T * stride + ends_T), passage_S * stride + begins_S, side="right"
    )
    starts_T = np.zeros(len(ends_T), dtype=bool)
    first_S = np.diff(passage_S, prepend=-1) > 0
    starts_T[found_S[~first_S & (found_S < offsets[passage_S + 1])]] = True
    begins_N, text_begins_N = offsets[:-1], offsets[:-1] + title_lengths_N
    starts_T[begins_N[lengths_N > 0]] = True
    starts_T[text_begins_N[text_begins_N < offsets[1:]]] = True
    return starts_T, title_lengths_N.astype(np.int32)


def article_structure(
    passages: Iterable[pd.DataFrame], links: pd.DataFrame
) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.int32]]:
    """`article`, `lead` and `links` of `PassageStructure` from a corpus's tables; `passages` come in blocks.

    Articles are numbered in the order of their first passages. An article's first section runs from its first passage
    until the section's name changes; an article without headings is one section. A passage without an article is not in
    a first section. Links to or from articles without passages are dropped.
    """
    articles, sections = DigestNumbers(), DigestNumbers()
    numbers = [np.zeros((3, 0), dtype=np.int32)]
    for block in passages:
        section_B = sections.add(digests_of(block["section"].tolist()))
        numbers.append(np.stack([_article_numbers(articles, block), section_B, block["position"]]).astype(np.int32))
    article_N, section_N, position_N = np.concatenate(numbers, axis=1)
    order = np.lexsort((position_N, article_N))
    article, section, place = article_N[order], section_N[order], np.arange(len(order))
    begins = np.flatnonzero(np.diff(article, prepend=-2))
    group = np.searchsorted(begins, place, side="right") - 1
    differs = section != section[begins][group]
    lead_ends = np.minimum.reduceat(np.where(differs, place, len(order)), begins)[group]
    lead_N = np.zeros(len(order), dtype=bool)
    lead_N[order] = (place < lead_ends) & (article >= 0)
    pairs = np.stack([articles.find(digests_of(links[column].tolist())) for column in ("source", "target")], axis=1)
    pairs = pairs[(pairs >= 0).all(1) & (pairs[:, 0] != pairs[:, 1])]
    unique = np.unique(pairs, axis=0) if len(pairs) else pairs
    return article_N, lead_N, unique.astype(np.int32).reshape(-1, 2)


def _article_numbers(known: DigestNumbers, block: pd.DataFrame) -> NDArray[np.int64]:
    """The number of each passage's article [B], or -1; unknown articles get the next numbers."""
    named_B = (block["article_id"] != "").to_numpy()
    numbers_B = np.full(len(block), -1, dtype=np.int64)
    numbers_B[named_B] = known.add(digests_of(block["article_id"][named_B].tolist()))
    return numbers_B
