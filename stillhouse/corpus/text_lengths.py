"""An estimate of the tokens of a text, in any script."""

from __future__ import annotations

import re

from stillhouse.corpus.words import UNSPACED

TOKENS_A_WORD = 1.35
"""Tokens per word of ordinary English, with the vocabulary of English BERT."""
CHARACTERS_A_TOKEN = 4.5
"""Letters and digits per token where words are long: names in a program, for example."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
_SIGN = re.compile(r"[^\w\s]|_")


def whole_words(length: int) -> int:
    """About how many words of ordinary English a passage of `length` tokens has: a longer one is truncated."""
    return max(1, round((length - 2) / TOKENS_A_WORD))


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has, including [CLS] and [SEP].

    Characters of scripts without spaces are one token each. For the rest it is the larger of two numbers: that of
    English words, and that of signs, one token each, with letters and digits.
    """
    spaced, unspaced = (text, 0) if text.isascii() else _UNSPACED.subn(" ", text)
    letters, signs = _SIGN.subn("", spaced)
    characters = sum(map(len, letters.split()))
    return round(unspaced + max(len(spaced.split()) * TOKENS_A_WORD, signs + characters / CHARACTERS_A_TOKEN)) + 2
