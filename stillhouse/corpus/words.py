"""What a word is, in any script: for counting, for answers in passages and for BM25. And how many tokens a text has.

Chinese, Japanese, Thai, Lao, Burmese and Khmer have no spaces between words. Each of their characters counts as one
word, and BM25 indexes each pair of neighbouring characters. In other scripts a word keeps its combining marks: most
vowels of Hindi are marks. `docs/languages.md` has the figures.
"""

import re
import unicodedata
from itertools import pairwise

import regex

UNSPACED = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
    "\u3040-\u30ff\u3100-\u312f\u31a0-\u31ff\uff66-\uff9f"  # Japanese kana, bopomofo
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
)
"""The characters of scripts without spaces between words, for a character class of `re` or `regex`."""
_COUNTED = regex.compile(f"[{UNSPACED}]\\p{{M}}*|[^\\s{UNSPACED}]+")
_LETTERS = r"[\p{L}\p{N}\p{M}_]"
_TERM = regex.compile(f"[{_LETTERS}&&[{UNSPACED}]]+|[{_LETTERS}--[{UNSPACED}]]{{2,}}", regex.V1)
_ASCII_TERM = re.compile(r"[a-z0-9_]{2,}")
_UNSPACED = re.compile(f"[{UNSPACED}]")
WORD = regex.compile(f"([{UNSPACED}]|[{_LETTERS}--[{UNSPACED}]]+)", regex.V1)
"""A word without the signs around it, or a character of an unspaced script, as the group of a pattern to split by."""
TOKENS_A_WORD = 1.35
"""Tokens per word of ordinary English, with the vocabulary of English BERT."""
CHARACTERS_A_TOKEN = 4.5
"""Letters and digits per token where words are long: names in a program, for example."""
_SIGN = re.compile(r"[^\w\s]|_")


def words_in(text: str) -> list[str]:
    """What white space separates, and each character of an unspaced script.

    >>> words_in("about 東京.")
    ['about', '東', '京', '.']
    """
    return text.split() if text.isascii() else _COUNTED.findall(text)


def count_words(text: str) -> int:
    """The number of words of a text."""
    return len(words_in(text))


def is_unspaced(text: str) -> bool:
    """Whether a text begins in a script without spaces between words."""
    return text[:1] >= "\u0e00" and _UNSPACED.match(text) is not None


def terms_in(text: str) -> list[str]:
    """The terms of a text for a search by words, in lower case.

    They are words of at least two letters and, of unspaced scripts, each pair of neighbouring characters.

    >>> terms_in("A map of 東京都")
    ['map', 'of', '東京', '京都']
    """
    text = text.lower()
    if text.isascii():
        return _ASCII_TERM.findall(text)
    terms: list[str] = []
    # In lower case, the Turkish capital İ is i and a dot above, which nobody types.
    for run in _TERM.findall(unicodedata.normalize("NFC", text).replace("i\u0307", "i")):
        if len(run) > 2 and is_unspaced(run):
            terms += map("".join, pairwise(run))
        else:
            terms.append(run)
    return terms


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
