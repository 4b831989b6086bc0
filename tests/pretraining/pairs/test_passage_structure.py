"""Sentences compared with the tokenizer's map from characters to tokens; articles and links with tables by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from stillhouse.corpus.sentences import sentence_spans
from stillhouse.corpus.titles import passage_text
from stillhouse.pretraining.pairs.structure import PassageStructure, article_structure
from stillhouse.pretraining.token_files import write_tokens

LETTERS = [*"abcdefghijklmnopqrstuvwxyz.,!?()é東京"]
PASSAGES = [
    ("Rye", "Malted rye is wet. It sprouts! Does it smell?"),
    ("", "One sentence alone"),
    ("No. 5 still", "A still. A worm."),
    ("Empty", ""),
    ("", ""),
    ("", "Tab\tand\xa0space. A J.\xa0R. Miller came.\n\nA new line (in brackets.) Then."),
    ("東京", "Café crème. 東京. Après."),
    ("\u200b", "Zero wide. \u200b\u200b And on."),
    ("Cut", "These are many words. " * 8 + "The end."),
]


def word_piece() -> Tokenizer:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    inner = Tokenizer(models.WordPiece({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return inner


def wrapped(inner: Tokenizer) -> PreTrainedTokenizerFast:
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **names)


def frame(passages: list[tuple[str, str]]) -> pd.DataFrame:
    return pd.DataFrame(passages, columns=["title", "text"])


@pytest.mark.parametrize("max_length", [6, 20, 400])
@pytest.mark.parametrize(
    ("at_once", "titles_as", "joint"),
    [
        (1, "space", " "),
        (4, "space", " "),
        (100, "space", " "),
        (4, "colon", ": "),
        (4, "line", "\n"),
        (4, "left_out", ""),
    ],
)
def test_sentences_begin_where_their_first_character_is(
    tmp_path: Path, max_length: int, at_once: int, titles_as: str, joint: str
) -> None:
    tokenizer = wrapped(word_piece())
    passages = frame(PASSAGES)
    parts = (passages.iloc[start : start + at_once] for start in range(0, len(passages), at_once))
    counts = write_tokens(tmp_path, parts, tokenizer, max_length, "en", titles_as)
    offsets, found = np.load(tmp_path / "offsets.npy"), np.load(tmp_path / "sentence_starts.npy")
    title_lengths = np.load(tmp_path / "title_lengths.npy")
    sentences = 0
    for row, (title, text) in enumerate(PASSAGES):
        read = f"{title}{joint}" if title and joint else ""
        assert passage_text(title, text, titles_as) == read + text
        encoding = tokenizer.backend_tokenizer.encode(read + text, add_special_tokens=False)
        length = min(len(encoding.ids), max_length - 2)
        shift = len(read)
        begins = [encoding.char_to_token(i) for i in range(shift - 1)]
        in_title = min(len({token for token in begins if token is not None}), length)
        assert title_lengths[row] == in_title, row
        wanted = {0} if in_title else set()
        for begin, end in sentence_spans(text):
            own = [encoding.char_to_token(i) for i in range(shift + begin, shift + end)]
            first = next((token for token in own if token is not None), length)
            if first < length:
                wanted.add(first)
        assert set(np.flatnonzero(found[offsets[row] : offsets[row + 1]])) == wanted, row
        sentences += len(wanted) - (in_title > 0)
    assert counts["sentences"] == sentences


ARTICLES = pd.DataFrame(
    [
        # article, section, position, first section?
        ("b", "Later", 3, False),
        ("b", "", 0, True),
        ("a", "Intro", 2, True),
        ("b", "", 1, True),
        ("b", "Body", 2, False),
        ("", "", 0, False),
        ("a", "Intro", 5, True),
        ("a", "Next", 7, False),
        ("a", "Intro", 9, False),
        ("c", "Only", 0, True),
        ("c", "Only", 1, True),
        ("", "", 0, False),
    ],
    columns=["article_id", "section", "position", "lead"],
)
NO_LINKS = pd.DataFrame({"source": [], "target": []})


@pytest.mark.parametrize("rows", [1, 5, 12])
def test_articles_and_first_sections_whatever_the_blocks(rows: int) -> None:
    blocks = [ARTICLES[begin : begin + rows].reset_index(drop=True) for begin in range(0, len(ARTICLES), rows)]
    article, lead, links = article_structure(blocks, NO_LINKS)
    assert article.tolist() == [0, 0, 1, 0, 0, -1, 1, 1, 1, 2, 2, -1]
    assert lead.tolist() == ARTICLES["lead"].tolist()
    assert (article.dtype, lead.dtype, links.dtype, links.shape) == (np.int32, np.bool_, np.int32, (0, 2))


def test_the_step_writes_what_the_cache_opens(
    run_step: Callable[..., dict[str, Path]], small_corpus: Path, tiny_model: Path
) -> None:
    inputs = {"corpus": small_corpus, "tokenizer": tiny_model}
    one, two = (run_step("tokenize", inputs, into=name)["tokens"] for name in ("one", "two"))
    structure = PassageStructure.open(one)
    assert structure is not None
    # 24 passages, three per article, each with a title of two words and one sentence.
    assert structure.article.tolist() == [row // 3 for row in range(24)]
    assert structure.title_lengths.tolist() == [2] * 24 and int(structure.sentence_starts.sum()) == 48
    assert structure.lead.all() and structure.links.shape == (0, 2)
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes(), path.name
    (one / "lead.npy").unlink()
    assert PassageStructure.open(one) is None
