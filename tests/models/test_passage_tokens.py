"""With `titles: sep`, every reader gives the tokenizer's tokens of the pair (title, text)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import CrossEncoder as TheirCrossEncoder
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.titles import passage_text
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.query_encoder import EXACT
from stillhouse.models.source import fetch
from stillhouse.models.tokenizer_files import cut_passages, load_tokenizer
from stillhouse.pretraining.tokens import cut

CPU = Context(Path(), "cpu", quiet=True)
WORD = st.sampled_from(["red", "birds", "fish", "tree", "unknown", "[SEP]", "[MASK]", "\x1f", "", "\n"])
TEXT = st.lists(WORD, max_size=14).map(" ".join)
PASSAGES = [("red bird", "the fish swims"), ("", "one tree"), ("blue", "[SEP] a tree"), ("red [SEP] fish", "two")]


def read(passages: list[tuple[str, str]]) -> list[str]:
    return [passage_text(title, text, "sep") for title, text in passages]


def with_double_separator() -> PreTrainedTokenizerBase:
    """A tokenizer that puts two separators between the texts of a pair, as RoBERTa's does."""
    words = ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "red", "birds", "fish", "tree", "[", "]", "SEP", "MASK"]
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    names = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **{f"{name}_token": word for name, word in names.items()})


@pytest.fixture(scope="module", params=["one separator", "two separators"])
def tokenizer(request: pytest.FixtureRequest, tiny_model: Path) -> PreTrainedTokenizerBase:
    return load_tokenizer(tiny_model) if request.param == "one separator" else with_double_separator()


def expected_ids(tokenizer: PreTrainedTokenizerBase, title: str, text: str, **options: object) -> list[int]:
    """The tokenizer's own ids of the pair, or of the text where there is no title."""
    pair = (title.replace("\x1f", " "), text.replace("\x1f", " "))
    # Lists, because a bare empty text would count as no text.
    texts = [[text] for text in (pair if title else pair[1:])]
    ids: list[int] = tokenizer(*texts, truncation=True, split_special_tokens=True, **options)["input_ids"][0]
    return ids


@given(st.lists(st.tuples(TEXT, TEXT), max_size=5), st.integers(6, 40))
@settings(max_examples=150, deadline=None)
def test_ids_are_those_of_the_tokenizers_pair(
    tokenizer: PreTrainedTokenizerBase, passages: list[tuple[str, str]], length: int
) -> None:
    found = cut_passages(tokenizer, read(passages), length)
    assert found == [expected_ids(tokenizer, *passage, max_length=length) for passage in passages]
    # The cache of pre-training holds the same ids without the special tokens around them, and truncates at the end.
    cached = cut(tokenizer, read(passages), 1000)
    own = [cached.ids[begin:end].tolist() for begin, end in zip(cached.offsets, cached.offsets[1:])]
    assert own == [expected_ids(tokenizer, *passage)[1:-1] for passage in passages]
    short = cut(tokenizer, read(passages), length)
    assert [short.ids[begin:end].tolist() for begin, end in zip(short.offsets, short.offsets[1:])] == [
        ids[: length - 2] for ids in own
    ]
    assert short.truncated == sum(len(ids) > length - 2 for ids in own)


def test_a_spelled_out_separator_is_not_a_separator(tiny_model: Path) -> None:
    tokenizer = load_tokenizer(tiny_model)
    ids = cut_passages(tokenizer, read(PASSAGES), 40)
    assert [own.count(tokenizer.sep_token_id) for own in ids] == [2, 1, 2, 2]
    assert "[SEP]" not in tokenizer.convert_ids_to_tokens(cut(tokenizer, read([("", "a [SEP] b")]), 40).ids.tolist())
    # The tokenizer reads queries afterwards as it did before.
    assert tokenizer("[SEP]")["input_ids"].count(tokenizer.sep_token_id) == 2


def test_a_tokenizer_without_a_separator_is_refused(tiny_model: Path) -> None:
    tokenizer = load_tokenizer(tiny_model)
    plain = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"?": 0}, unk_token="?")), pad_token="?"
    )
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    for lacking in (plain, tokenizer):
        for read_by in (cut_passages, cut):
            with pytest.raises(InputError, match=r"no separator between a title and a text.*set titles to space"):
                read_by(lacking, read([("red", "bird")]), 20)
            read_by(lacking, read([("", "bird")]), 20)


@pytest.fixture
def encoder_folder(tiny_model: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "encoder"
    folder.mkdir()
    fetch(str(tiny_model), None, "cls", 24, 24, folder)
    return folder


def test_vectors_are_those_of_the_pair_without_token_types(encoder_folder: Path) -> None:
    encoder = BiEncoder.load(encoder_folder)
    found = encode(encoder, encoder.passages(read(PASSAGES[:2])), CPU, "test", EXACT)
    model, tokenizer = AutoModel.from_pretrained(encoder_folder).eval(), load_tokenizer(encoder_folder)
    for vector, texts in zip(found, (("red bird", "the fish swims"), ("one tree",))):
        with torch.inference_mode():
            tokens = tokenizer(*texts, return_tensors="pt", return_token_type_ids=False)
            expected = torch.nn.functional.normalize(model(**tokens).last_hidden_state[:, 0])[0]
        np.testing.assert_allclose(vector, expected, atol=1e-6)
    # As docs/fine-tuning.md says for sentence-transformers.
    theirs = SentenceTransformer(str(encoder_folder), device="cpu")
    theirs.tokenizer.model_input_names = ["input_ids", "attention_mask"]
    np.testing.assert_allclose(theirs.encode_document([("red bird", "the fish swims")])[0], found[0], atol=1e-6)


def test_a_prompt_stands_before_the_title_and_before_a_text_without_one(tiny_model: Path) -> None:
    tokenizer = load_tokenizer(tiny_model)
    ids = cut_passages(tokenizer, read([("red", "bird"), ("", "fish")]), 20, "the one ")
    assert ids == [tokenizer("the one red", "bird")["input_ids"], tokenizer("the one fish")["input_ids"]]


def test_a_cross_encoder_reads_title_colon_text(tiny_model: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = CrossEncoder.start(tiny_model, 32).eval()
    passages, queries = [*PASSAGES[:2], ("blue", "fish")], ["which bird", "what", "where"]
    pairs = model.pairs(queries, read(passages))
    same = model.pairs(queries, ["red bird: the fish swims", "one tree", "blue: fish"])
    assert pairs.ids.ids == same.ids.ids
    model.save(tmp_path / "reranker")
    theirs = TheirCrossEncoder(str(tmp_path / "reranker"), device="cpu")
    expected = theirs.predict([("which bird", "red bird: the fish swims")])
    with torch.inference_mode():
        np.testing.assert_allclose(model(*pairs.batch([0], torch.device("cpu"))), expected, atol=1e-5)
