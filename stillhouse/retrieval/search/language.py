"""What BM25 does to the terms of a language: a stemmer by PyStemmer (Snowball), and stop words by bm25s.

Snowball's stemmer helps in every language that was measured, and bm25s's stop words in English and German
(docs/languages.md), so other lists are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import Stemmer

from stillhouse.corpus.words import terms_in

WITH_STOP_WORDS = ("en", "de")
PASSAGES_SAMPLED, CHARACTERS_SAMPLED = 500, 200
"""The language of a corpus is that of the beginnings of this many passages, and of this many characters of each."""


@dataclass(frozen=True)
class Terms:
    """How texts become the terms of an index, which stores it: queries are always cut as its passages were.

    `language` is an ISO 639-1 code, or "" if it is unknown. `stemmer` and `stop_words` are the same code, or "" for
    none.
    """

    language: str
    stemmer: str
    stop_words: str

    @classmethod
    def of_language(cls, language: str) -> Terms:
        """The stemmer and the stop words of a language, as far as there are any."""
        try:
            Stemmer.Stemmer(language)
        except KeyError:
            return cls(language, "", "")
        return cls(language, language, language if language in WITH_STOP_WORDS else "")

    def __str__(self) -> str:
        stemmed = "stemmed" if self.stemmer else "not stemmed"
        return f"language {self.language or 'unknown'}: {stemmed}{', without stop words' * bool(self.stop_words)}"

    def of(self, texts: Iterable[str]) -> list[list[str]]:
        """The terms of each text, stemmed, without stop words. Raises `KeyError` for an unknown stemmer or list.

        >>> Terms.of_language("en").of(["The stills of 東京都"])
        [['still', '東京', '京都']]
        """
        left_out = _stop_words(self.stop_words)
        lists = [[term for term in terms_in(text) if term not in left_out] for text in texts]
        if not self.stemmer:
            return lists
        stemmer = Stemmer.Stemmer(self.stemmer)  # a new one for each call, since threads cannot share it
        distinct = list({term: None for terms in lists for term in terms})
        stems = dict(zip(distinct, stemmer.stemWords(distinct)))
        return [[stems[term] for term in terms] for terms in lists]


def language_of(texts: Sequence[str]) -> str:
    """The main language of texts as an ISO 639-1 code, by py3langid; "" without any letter."""
    sample = " ".join(text[:CHARACTERS_SAMPLED] for text in texts)
    if not any(map(str.isalpha, sample)):
        return ""
    import py3langid  # loads its model at the first call, which takes a second

    # It also knows languages without such a code, among them relatives of Chinese in the same script.
    code = next(code for code, _ in py3langid.rank(sample) if len(code) == 2)
    return {"nb": "no", "nn": "no"}.get(code, code)  # Snowball has one stemmer for both forms of Norwegian


def _stop_words(language: str) -> frozenset[str]:
    from bm25s import stopwords  # not above: bm25.py imports bm25s first, without JAX

    return frozenset({"": [], "en": stopwords.STOPWORDS_EN, "de": stopwords.STOPWORDS_GERMAN}[language])
