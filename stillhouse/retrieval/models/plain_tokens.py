"""Texts cut into token ids by the library `tokenizers` alone, as `BiEncoder` cuts them by transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer

from stillhouse.corpus.titles import divided


class PlainTokens(Protocol):
    """What cuts texts of one role."""

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, special tokens included."""


class QueryTokens:
    """Queries, each behind the prompt and cut to `length` tokens, from a model folder's `tokenizer.json`."""

    def __init__(self, folder: Path, length: int, prompt: str) -> None:
        self.tokenizer, self._prompt = _tokenizer(folder, length), prompt

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self.tokenizer.encode_batch([self._prompt + text for text in texts])
        return [list(each.ids) for each in encoded]


class PassageTokens:
    """Passages as `passage_text` gives them: with `titles: sep` a pair of title and text, as in `cut_passages`."""

    def __init__(self, folder: Path, length: int, prompt: str) -> None:
        self._tokenizer, self._prompt = _tokenizer(folder, length), prompt

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        parts = [divided(text) for text in texts]
        ids: list[list[int]] = [[]] * len(texts)
        for separated in {separated for _, _, separated in parts}:
            rows = [row for row, part in enumerate(parts) if part[2] == separated]
            # A special token that title or text spell out is cut like any other word.
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
