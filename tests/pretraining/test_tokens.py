"""The token cache compared with the tokenizer's own padded batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from stillhouse.corpus.titles import SEPARATOR
from stillhouse.pretraining.tokens import SpecialTokens, TokenCache, cut

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "rye", "mal", "##t", "##ed", "copper", "still", "##s", ".", ","]
TEXTS = ["malted rye, copper stills.", "", "rye", "malt malt malt stills malted", "gin rye", "rye [SEP] malt"]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.enable_truncation(4)
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **names)


def cache_of(tokenizer: PreTrainedTokenizerFast, folder: Path, max_length: int = 144) -> TokenCache:
    tokens = cut(tokenizer, TEXTS, max_length)
    for name in ("ids", "offsets", "word_starts"):
        np.save(folder / f"{name}.npy", getattr(tokens, name))
    return TokenCache.open(folder, SpecialTokens.of(tokenizer))


def test_tokens_and_word_starts(tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = cut(tokenizer, TEXTS, 144)
    spelled = [WORDS[i] for i in tokens.ids]
    first = ["mal", "##t", "##ed", "rye", ",", "copper", "still", "##s", "."]
    assert spelled[:9] == first
    assert tokens.word_starts[:9].tolist() == [not word.startswith("##") for word in first]
    assert np.diff(tokens.offsets).tolist() == [9, 0, 1, 11, 2, 4]
    # The second of two equal words in a row is a word of its own, and so is the first word of every passage.
    assert tokens.word_starts[tokens.offsets[:-1][[0, 2, 3, 4, 5]]].all()
    assert [word for word, start in zip(spelled[10:21], tokens.word_starts[10:21]) if start] == ["mal"] * 3 + [
        "still",
        "mal",
    ]
    assert tokens.truncated == 0


PIECES = st.sampled_from(
    ["malted", "rye", "still", "s", ".", ",", "[SEP]", "[MASK]", "gin", "é", "e\u0301", "\u4e2d", "\u00a0", "\x00"]
)
UNDIVIDED = st.text(st.characters(codec="utf-8", exclude_characters=SEPARATOR), max_size=3)
"""Text without the separator of title and text. `passage_text` keeps it out of all other texts."""


@given(
    texts=st.lists(st.lists(PIECES | st.sampled_from([" ", "\n"]) | UNDIVIDED, max_size=12).map("".join), max_size=5),
    max_length=st.sampled_from([3, 5, 9, 144]),
)
def test_tokens_are_what_the_tokenizer_says_of_each_text(
    tokenizer: PreTrainedTokenizerFast, texts: list[str], max_length: int
) -> None:
    """Compares with the tokenizer's own call, text by text and token by token."""
    ids, starts, ends, offsets, truncated = [], [], [], [0], 0
    for text in texts:
        said = tokenizer(text, add_special_tokens=False, truncation=False, return_offsets_mapping=True)
        words = said.word_ids()
        whole = list(zip(said["input_ids"], words, [None, *words], said["offset_mapping"]))
        for id, word, before, (_, end) in whole[: max_length - 2]:
            ids.append(id)
            starts.append(word != before)
            ends.append(end)
        offsets.append(len(ids))
        truncated += len(whole) > max_length - 2
    tokens = cut(tokenizer, texts, max_length)
    assert (tokens.ids.tolist(), tokens.offsets.tolist(), tokens.truncated) == (ids, offsets, truncated)
    assert (tokens.word_starts.tolist(), tokens.ends.tolist()) == (starts, ends)
    kinds = (tokens.ids.dtype, tokens.offsets.dtype, tokens.word_starts.dtype, tokens.ends.dtype)
    assert kinds == (np.int32, np.int64, np.bool_, np.int32)


@pytest.mark.parametrize("max_length", [3, 5, 8, 144])
def test_batches_equal_the_tokenizers(tokenizer: PreTrainedTokenizerFast, tmp_path: Path, max_length: int) -> None:
    cache = cache_of(tokenizer, tmp_path)
    rows = np.array([3, 0, 1, 5, 3])
    batch = cache.batch(rows, max_length)
    bare = tokenizer([TEXTS[row] for row in rows], add_special_tokens=False, truncation=False)["input_ids"]
    wanted = [[2, *ids[: max_length - 2], 3] for ids in bare]
    longest = max(map(len, wanted))
    np.testing.assert_array_equal(batch.ids, [ids + [0] * (longest - len(ids)) for ids in wanted])
    np.testing.assert_array_equal(batch.attention, [[i < len(ids) for i in range(longest)] for ids in wanted])
    # [SEP] in the text of passage 5 is special too.
    np.testing.assert_array_equal(batch.special, np.isin(batch.ids, [0, 1, 2, 3, 4]))
    starts = [[False, *(not WORDS[token].startswith("##") for token in ids[1:-1]), False] for ids in wanted]
    np.testing.assert_array_equal(batch.word_starts, [row + [False] * (longest - len(row)) for row in starts])
