"""Counts the tokens of texts with a model's own tokenizer, and says whether it suits them.

This file does not import PyTorch for a `tokenizer.json`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.models.encoder_settings import lower_cased, transformer_in

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHARACTERS_READ = 4_000
"""Of each text; the tokens of a longer one are counted in proportion."""
UNKNOWN_SHARE = 0.03
"""Of the tokens. MiniLM's tokenizer, an English one, has at most 0.0005 in English, code and German, 0.04 in Hindi and
0.69 in Chinese."""
TOKENS_A_LETTER = 0.31
"""Of words in lower case or capitalised, so that names in code do not count. Han, kana and Hangul count as four letters
each. The same tokenizer makes 0.21 to 0.24 tokens of a letter of English prose and science, 0.23 to 0.28 of code, 0.32
to 0.39 of eleven other languages in Latin letters, 0.70 of Hindi and 0.96 of Arabic. A multilingual one makes 0.24 to
0.30."""


def token_lengths(texts: Sequence[str], folder: Path) -> list[int] | None:
    """How many tokens each text has for the model in `folder`, special tokens included and nothing cut off.

    None if the folder has no tokenizer that can be read.
    """
    try:
        encodings = _tokenizer(folder).encode_batch_fast(_parts(texts))
    except Exception:  # tokenizers raises nearly anything over a damaged file; `fetch-model` reports it
        return None
    return [
        round(len(encoding.ids) * max(1.0, len(text) / CHARACTERS_READ)) for text, encoding in zip(texts, encodings)
    ]


def token_counter(folder: Path) -> Callable[[str], int]:
    """Counts a text's tokens for the model in `folder`, special tokens included and nothing cut off.

    Other processes can call it, even on machines without the folder. Raises `InputError` for a folder without a
    tokenizer.
    """
    return partial(_count, _tokenizer(folder))


def _count(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.encode(text).ids)


def misfit(texts: Sequence[str], folder: Path) -> str | None:
    """What shows that the tokenizer of the model in `folder` was made for other texts; None if nothing does.

    None also if the folder has no tokenizer that can be read.
    """
    words = [" ".join(_words(part)) for part in _parts(texts)]
    try:
        tokenizer = _tokenizer(folder)
        encodings = tokenizer.encode_batch_fast(words, add_special_tokens=False)
    except Exception:  # as above
        return None
    names = (getattr(tokenizer.model, "unk_token", None), "[UNK]", "<unk>")
    unknown = {tokenizer.token_to_id(name) for name in names if name}
    ids = [id for encoding in encodings for id in encoding.ids]
    share = sum(id in unknown for id in ids) / max(1, len(ids))
    if share > UNKNOWN_SHARE:
        return f"{share:.0%} of the tokens are unknown to it"
    letters = [letter for text in words for letter in text if letter != " "]
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in letters)
    if len(ids) > TOKENS_A_LETTER * (len(letters) + 3 * wide):
        return f"it makes a token of every {len(letters) / len(ids):.1f} letters"
    return None


def _words(text: str) -> list[str]:
    """The words without digits, underscores and inner capitals."""
    kinds = {character: unicodedata.category(character)[0] for character in set(text)}
    kept = "".join(character if character == "_" or kinds[character] in "LMN" else " " for character in text)
    return [
        word
        for word in kept.split()
        if word[1:] == word[1:].lower() and all(character != "_" and kinds[character] != "N" for character in word)
    ]


def _parts(texts: Sequence[str]) -> list[str]:
    return [text[:CHARACTERS_READ].encode("utf-8", "replace").decode("utf-8") for text in texts]


def _tokenizer(folder: Path) -> Tokenizer:
    """A tokenizer that cuts and pads nothing."""
    if (transformer_in(folder) / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(transformer_in(folder) / "tokenizer.json"))
        lower_cased(tokenizer, folder)
    else:
        from stillhouse.models.tokenizer_files import load_tokenizer

        tokenizer = load_tokenizer(folder).backend_tokenizer
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
