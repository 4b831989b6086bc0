"""Tokenizes texts with the `tokenizers` library alone; the ids equal those of `BiEncoder`, which uses transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer

from stillhouse.corpus.titles import divided


class PlainTokens(Protocol):
    """Tokenizes texts of one role."""

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, special tokens included."""


class QueryTokens:
    """Tokenizes queries after the prompt, cut to `length` tokens, with a model folder's `tokenizer.json`."""

    def __init__(self, folder: Path, length: int, prompt: str) -> None:
        self.tokenizer, self._prompt = _tokenizer(folder, length), prompt

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self.tokenizer.encode_batch([self._prompt + text for text in texts])
        return [list(each.ids) for each in encoded]


class PassageTokens:
    """Tokenizes passages from `passage_text`; with `titles: sep`, title and text form a pair, as in `cut_passages`."""

    def __init__(self, folder: Path, length: int, prompt: str) -> None:
        self._tokenizer, self._prompt = _tokenizer(folder, length), prompt

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        parts = [divided(text) for text in texts]
        ids: list[list[int]] = [[]] * len(texts)
        for separated in {separated for _, _, separated in parts}:
            rows = [row for row, part in enumerate(parts) if part[2] == separated]
            # If a title or text spells out a special token, it is tokenized like any other word.
            self._tokenizer.encode_special_tokens = separated
            for row, each in zip(rows, self._tokenizer.encode_batch([self._read(*parts[row][:2]) for row in rows])):
                ids[row] = list(each.ids)
        return ids

    def _read(self, title: str, text: str) -> str | tuple[str, str]:
        return (self._prompt + title, text) if title else self._prompt + text


def _tokenizer(folder: Path, length: int) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(length)
    return tokenizer
