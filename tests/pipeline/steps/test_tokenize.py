"""Step `tokenize` on a small corpus: the files of docs/reference/formats.md, for any number of texts at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from passage_corpora import write_passages
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import InputError
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.tokenize import STEP, Config
from stillhouse.pretraining import token_parts

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "pot", "still", "##s", "rye"]


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    inner = Tokenizer(models.WordPiece({word: i for i, word in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    folder = tmp_path_factory.mktemp("tokenizer")
    PreTrainedTokenizerFast(tokenizer_object=inner, **names).save_pretrained(folder)
    return folder


def corpus(folder: Path, texts: list[str]) -> Path:
    return write_passages(
        folder, texts, title=["pot", *[""] * len(texts)][: len(texts)], position=list(range(len(texts)))
    )


@pytest.mark.parametrize("at_once", [1, 2, 2048])
def test_writes_the_token_arrays(
    tmp_path: Path, tokenizer_folder: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(token_parts, "TEXTS_AT_ONCE", at_once)
    inputs = {"corpus": corpus(tmp_path / "corpus", ["stills rye", "", "rye rye"]), "tokenizer": tokenizer_folder}
    execute(STEP, Config(max_length=5), inputs, {"tokens": tmp_path / "tokens"})
    ids, offsets, starts = (np.load(tmp_path / "tokens" / f"{name}.npy") for name in ("ids", "offsets", "word_starts"))
    # "pot stills rye" has the tokens pot still ##s rye; three fit beside [CLS] and [SEP].
    assert ids.tolist() == [5, 6, 7, 8, 8]
    assert offsets.tolist() == [0, 3, 3, 5]
    assert starts.tolist() == [True, True, False, True, True]
    assert (ids.dtype, offsets.dtype, starts.dtype) == (np.int32, np.int64, np.bool_)
    facts = read_manifest(tmp_path / "tokens").facts
    assert {name: facts[name] for name in ("passages", "tokens", "truncated", "vocabulary")} == {
        "passages": 3,
        "tokens": 5,
        "truncated": 1,
        "vocabulary": 9,
    }


def test_refuses_a_corpus_without_passages(
    tmp_path: Path, tokenizer_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = {"corpus": corpus(tmp_path / "corpus", []), "tokenizer": tokenizer_folder}
    with pytest.raises(InputError, match="stillhouse ingest"):
        execute(STEP, Config(), inputs, {"tokens": tmp_path / "tokens"})
    assert not (tmp_path / "tokens").exists()
