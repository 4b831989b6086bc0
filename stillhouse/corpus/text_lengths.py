"""The words of a text in any script, and an estimate of its tokens.

Chinese, Japanese, Thai, Lao, Burmese and Khmer have no spaces between words, so each of their characters counts as one.
"""

from __future__ import annotations

import re

TOKENS_A_WORD = 1.35
"""Tokens per word of ordinary English, with the vocabulary of English BERT."""
CHARACTERS_A_TOKEN = 4.5
"""Letters and digits per token where words are long: names in a program, for example."""
_UNSPACED = re.compile(
    "["
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
    "\u3040-\u30ff\u3100-\u312f\u31a0-\u31ff"  # Japanese kana, bopomofo
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "]"
)
_SIGN = re.compile(r"[^\w\s]|_")


def whole_words(length: int) -> int:
    """About how many words of ordinary English a passage of `length` tokens has: a longer one is truncated."""
    return max(1, round((length - 2) / TOKENS_A_WORD))


def words_in(text: str) -> int:
    """The number of words: what white space separates, and each character of a script without spaces."""
    if text.isascii():  # Python knows that without reading the text
        return len(text.split())
    return len(_UNSPACED.sub(" x ", text).split())


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has, including [CLS] and [SEP].

    Characters of scripts without spaces are one token each. For the rest it is the larger of two numbers: that of
    English words, and that of signs, one token each, with letters and digits.
    """
    spaced, unspaced = (text, 0) if text.isascii() else _UNSPACED.subn(" ", text)
    letters, signs = _SIGN.subn("", spaced)
    characters = sum(map(len, letters.split()))
    return round(unspaced + max(len(spaced.split()) * TOKENS_A_WORD, signs + characters / CHARACTERS_A_TOKEN)) + 2
