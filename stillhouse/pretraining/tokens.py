"""The token cache: passages tokenized once into flat memory-mapped arrays, and batches from it.

Shape suffixes: B passages, L tokens, T all tokens end to end, N all passages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer
from transformers import PreTrainedTokenizerBase

from stillhouse.core.artifacts import digest_json
from stillhouse.core.errors import InputError
from stillhouse.corpus.titles import divided
from stillhouse.models.tokenizer_files import separators
from stillhouse.pretraining.pairs.structure import PassageStructure

ADDED = 2
"""Special tokens around a passage: [CLS] before it and [SEP] after it."""
UNCUT = 1 << 30
"""A length that no text reaches."""


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of a tokenizer's special tokens; `all` is sorted and includes [UNK]."""

    cls: int
    sep: int
    pad: int
    mask: int
    all: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> SpecialTokens:
        """Raises `InputError` if the tokenizer lacks one of the four."""
        ids = {name: getattr(tokenizer, f"{name}_token_id") for name in ("cls", "sep", "pad", "mask")}
        lacking = [name for name, number in ids.items() if number is None]
        if lacking:
            raise InputError(
                f"the tokenizer has no {lacking[0]} token; fetch a BERT-like encoder with `stillhouse fetch-model`"
            )
        return cls(**ids, all=tuple(sorted(tokenizer.all_special_ids)))


def vocabulary_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """The digest of the map from token to id; equal digests mean equal vocabularies."""
    return digest_json(tokenizer.get_vocab())


@dataclass(frozen=True)
class Tokens:
    """Passages as flat arrays: `ids` int32 [T], `offsets` int64 [N + 1], `word_starts` bool [T], `ends` int32 [T].

    `ends` is the position in the text after each token; it is not saved. `truncated` is the number of truncated
    passages.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    word_starts: NDArray[np.bool_]
    ends: NDArray[np.int32]
    truncated: int


def cut(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int) -> Tokens:
    """Tokenize texts without special tokens, into at most `max_length - 2` tokens each.

    The tokenizer's pre-tokenizer defines words, so each punctuation mark is a word. In a corpus with `titles: sep` the
    tokenizer's [SEP] stands between title and text, as a word that ends with the title. Raises `InputError` for a
    tokenizer without a fast version, which is needed to find words, or without a separator if one is needed.
    """
    if not tokenizer.is_fast:
        raise InputError("the tokenizer has no fast version (tokenizer.json), which is needed to find words")
    if not texts:
        return Tokens(np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, bool), np.zeros(0, np.int32), 0)
    parts = [divided(text) for text in texts]
    if any(separated for _, _, separated in parts):
        return _cut_pairs(tokenizer, [part[:2] for part in parts], max_length)
    return _cut_texts(tokenizer, texts, max_length)


def _cut_pairs(tokenizer: PreTrainedTokenizerBase, parts: Sequence[tuple[str, str]], max_length: int) -> Tokens:
    """Join titles, separators and texts; special tokens spelled out in them are plain words."""
    titles, texts = (
        _cut_texts(tokenizer, side, UNCUT, literally=True) for side in ([part[n] for part in parts] for n in (0, 1))
    )
    passages = np.arange(len(parts))
    chars_N = np.array([len(title) for title, _ in parts])
    between_N = np.where(chars_N > 0, separators(tokenizer) if chars_N.any() else 0, 0)
    between = Tokens(
        np.full(between_N.sum(), tokenizer.sep_token_id or 0, dtype=np.int32),
        np.concatenate([[0], np.cumsum(between_N)]),
        np.ones(between_N.sum(), dtype=bool),
        np.repeat(chars_N, between_N).astype(np.int32),
        0,
    )
    of_passage_T = [np.repeat(passages, np.diff(side.offsets)) for side in (titles, between, texts)]
    order_T = np.argsort(np.concatenate(of_passage_T), kind="stable")
    # A text begins after its title and the separator, or after just the separator.
    ends_T = np.concatenate([titles.ends, between.ends, texts.ends + (chars_N + 1)[of_passage_T[2]]])[order_T]
    ids_T = np.concatenate([titles.ids, between.ids, texts.ids])[order_T]
    starts_T = np.concatenate([titles.word_starts, between.word_starts, texts.word_starts])[order_T]
    whole = titles.offsets + between.offsets + texts.offsets
    lengths_N = np.minimum(np.diff(whole), max_length - ADDED)
    kept_T = np.arange(whole[-1]) - np.repeat(whole[:-1], np.diff(whole)) < np.repeat(lengths_N, np.diff(whole))
    return Tokens(
        ids_T[kept_T],
        np.concatenate([[0], np.cumsum(lengths_N)]),
        starts_T[kept_T],
        ends_T[kept_T].astype(np.int32),
        int((lengths_N < np.diff(whole)).sum()),
    )


def _cut_texts(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int, literally: bool = False
) -> Tokens:
    """Tokenize texts without separators; `literally` treats special tokens spelled out in them as plain words."""
    encodings = _encoded(tokenizer, texts, literally)
    most, truncated = max_length - ADDED, 0
    for encoding in encodings:
        if len(encoding) > most:
            encoding.truncate(most)
            truncated += 1
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum([len(encoding) for encoding in encodings], out=offsets[1:])
    # Reading each list of the tokenizer just once, directly into an array, takes a tenth of the time.
    ids_T = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int32, offsets[-1])
    words_T = np.fromiter(chain.from_iterable(encoding.word_ids for encoding in encodings), np.int32, offsets[-1])
    spans = chain.from_iterable(encoding.offsets for encoding in encodings)
    ends_T = np.fromiter(chain.from_iterable(spans), np.int32, 2 * offsets[-1])[1::2].copy()
    starts_T = np.ones(len(ids_T), dtype=bool)
    starts_T[1:] = words_T[1:] != words_T[:-1]
    starts_T[offsets[:-1][np.diff(offsets) > 0]] = True
    return Tokens(ids_T, offsets, starts_T, ends_T, truncated)


def _encoded(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], literally: bool) -> list[Encoding]:
    """The encoding of each text by the library behind a fast tokenizer, untruncated and without special tokens.

    Calling the tokenizer itself would also build lists of all ids that are not needed here.
    """
    backend: Tokenizer = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = literally or tokenizer.split_special_tokens
    encodings: list[Encoding] = backend.encode_batch(list(texts), add_special_tokens=False)
    return encodings


@dataclass(frozen=True)
class PassageBatch:
    """Passages with special tokens and padding, as NumPy arrays [B, L], where L is the length of the longest.

    `ids` is int64; `attention` is true at tokens and false at padding; `special` is true at special tokens and padding,
    which are never corrupted or predicted; `word_starts` is true at passage tokens that begin a word; `importance`
    float32 is the AMI value (0 at special tokens), or None if the cache has none.
    """

    ids: NDArray[np.int64]
    attention: NDArray[np.bool_]
    special: NDArray[np.bool_]
    word_starts: NDArray[np.bool_]
    importance: NDArray[np.float32] | None


@dataclass(frozen=True)
class TokenCache:
    """A memory-mapped `tokens/` folder and, optionally, the importance values of its tokens.

    `structure` is None for a folder written without sentences and articles.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    word_starts: NDArray[np.bool_]
    specials: SpecialTokens
    importance: NDArray[np.float32] | None = None
    structure: PassageStructure | None = None

    @classmethod
    def open(cls, folder: Path, specials: SpecialTokens, importance: Path | None = None) -> TokenCache:
        """Raises `InputError` if a file is missing or the importance belongs to other tokens."""
        for name in ("ids", "offsets", "word_starts"):
            if not (folder / f"{name}.npy").is_file():
                raise InputError(
                    f"{folder} is not a token folder: it lacks {name}.npy; run `stillhouse tokenize` to write one"
                )
        ids = np.load(folder / "ids.npy", mmap_mode="r")
        offsets = np.load(folder / "offsets.npy")
        word_starts = np.load(folder / "word_starts.npy", mmap_mode="r")
        ami = np.load(importance / "ami.npy", mmap_mode="r") if importance else None
        if ami is not None and len(ami) != len(ids):
            raise InputError(f"{importance} does not match the tokens in {folder}; run `stillhouse importance` again")
        return cls(ids, offsets, word_starts, specials, ami, PassageStructure.open(folder))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of every passage, without special tokens, int64 [N]."""
        return np.diff(self.offsets)

    def batch(self, rows: NDArray[np.int64], max_length: int) -> PassageBatch:
        """The passages of `rows`, truncated to `max_length` tokens with special tokens and padded to the longest."""
        begins_B1 = self.offsets[rows][:, None]
        lengths_B1 = np.minimum(self.offsets[rows + 1][:, None] - begins_B1, max_length - ADDED)
        position_1L = np.arange(int(lengths_B1.max()) + ADDED)[None]
        inside_BL = (position_1L >= 1) & (position_1L <= lengths_B1)
        where = (begins_B1 + position_1L - 1)[inside_BL]
        ids_BL = np.full(inside_BL.shape, self.specials.pad, dtype=np.int64)
        ids_BL[:, 0] = self.specials.cls
        ids_BL[position_1L == lengths_B1 + 1] = self.specials.sep
        ids_BL[inside_BL] = self.ids[where]
        word_starts_BL = np.zeros(inside_BL.shape, dtype=bool)
        word_starts_BL[inside_BL] = self.word_starts[where]
        importance_BL = None
        if self.importance is not None:
            importance_BL = np.zeros(inside_BL.shape, dtype=np.float32)
            importance_BL[inside_BL] = self.importance[where]
        # A passage may spell out a special token ("[SEP]"), which the tokenizer then reads as one.
        special_BL = ~inside_BL | np.isin(ids_BL, self.specials.all)
        return PassageBatch(ids_BL, position_1L <= lengths_B1 + 1, special_BL, word_starts_BL, importance_BL)
