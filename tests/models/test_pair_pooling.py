"""A cross-encoder without a scoring layer: the cosine of both halves, held against a slow version in float64."""

from __future__ import annotations

import copy
import itertools
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, RobertaConfig, RobertaModel

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.acceleration.unpadded import without_padding
from stillhouse.models.cross_encoder import CrossEncoder, passage_halves
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.encoder_settings import read_settings
from stillhouse.models.pair_scores import score_pairs
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.source import fetch
from stillhouse.models.tokenizer_files import load_tokenizer

CPU = torch.device("cpu")
LENGTH = 32
QUERIES = ["where does the red bird sing", "", "what is the fish", "which tree " * 2000]
PASSAGES = ["the red bird sings in the tree", "", "a tree grows " * 3000, "fish"]
PAIRS = list(itertools.product(QUERIES, PASSAGES))


@dataclass
class Case:
    """A cross-encoder with weights so large that scores differ, and how its tokenizer joins a pair."""

    model: CrossEncoder
    separators: int
    words: dict[str, int] = field(init=False)
    exact: torch.nn.Module = field(init=False)

    def __post_init__(self) -> None:
        self.words = self.model.tokenizer.get_vocab()
        self.exact = copy.deepcopy(self.model.model).double()

    def slow_score(self, query: str, passage: str) -> float:
        """The score of one pair, alone in its batch; a word of the vocabulary is one token."""
        own = [self.words.get(word, self.words["[UNK]"]) for word in query.split()][: LENGTH // 2]
        head = [self.words["[CLS]"], *own, *[self.words["[SEP]"]] * self.separators]
        text = [self.words.get(word, self.words["[UNK]"]) for word in passage.split()][: LENGTH - len(head) - 1]
        ids = [*head, *text, self.words["[SEP]"]]
        with torch.no_grad():
            states = self.exact(input_ids=torch.tensor([ids])).last_hidden_state[0].tolist()
        halves = states[: len(head)], states[len(head) :]
        sides = [[sum(column) / len(half) for column in zip(*half)] for half in halves]
        dot = sum(a * b for a, b in zip(*sides))
        return 20 * dot / math.prod(math.sqrt(sum(a * a for a in side)) for side in sides)


@pytest.fixture(scope="module")
def two_separators(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RoBERTa, whose tokenizer puts two separators between the texts of a pair and gives no token types."""
    folder = tmp_path_factory.mktemp("roberta") / "model"
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    torch.manual_seed(0)
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=66, pad_token_id=0, **sizes)
    RobertaModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(params=["BERT", "ModernBERT", "RoBERTa"])
def case(request: pytest.FixtureRequest, tiny_model: Path) -> Case:
    name = {"ModernBERT": "tiny_modernbert", "RoBERTa": "two_separators"}.get(request.param, "tiny_model")
    return large(request.getfixturevalue(name), 2 if request.param == "RoBERTa" else 1)


def large(folder: Path, separators: int = 1) -> Case:
    model = CrossEncoder.start(folder, LENGTH, pooling="cosine").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10 if parameter.ndim > 1 else 1)
    return Case(model, separators)


def scores_of(model: CrossEncoder, pairs: list[tuple[str, str]], work: Path, precision: str = "fp32") -> np.ndarray:
    queries, passages = (np.array(texts, dtype=object) for texts in zip(*pairs))
    places = np.arange(len(pairs))
    config = InferenceConfig(precision=precision, batch_tokens=128)
    work.mkdir(exist_ok=True)
    return score_pairs(model, queries, passages, places, places, Context(work, "cpu", True), "scoring", config)


def test_a_score_is_the_cosine_of_the_mean_states_of_both_halves(case: Case, tmp_path: Path) -> None:
    """Whatever the tokenizer, the lengths and the batch; without padding, and in bf16, it is the same but rounded."""
    expected = [case.slow_score(query, passage) for query, passage in PAIRS]
    assert np.std(expected) > 0.2 and min(expected) >= -20 and max(expected) <= 20
    np.testing.assert_allclose(scores_of(case.model, PAIRS, tmp_path / "fp32"), expected, atol=2e-4)
    texts = case.model.pairs(*map(list, zip(*PAIRS)))
    batch = texts.batch(range(len(PAIRS)), CPU)
    assert len(set(texts.ids.lengths())) > 5 and texts.ids.lengths().max() == LENGTH
    with torch.no_grad(), without_padding(case.model):
        np.testing.assert_allclose(case.model(*batch), expected, atol=2e-4)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        rounded = case.model(*batch)
    assert rounded.dtype == torch.float32 and np.corrcoef(rounded, expected)[0, 1] > 0.99


def test_halves_are_the_token_types_of_bert(tiny_model: Path) -> None:
    """As the tokenizer itself gives them when it is asked to, with an empty query or passage too."""
    queries, passages = (list(texts) for texts in zip(*PAIRS[:12]))
    tokenizer = load_tokenizer(tiny_model)
    lengths = {"truncation": "only_second", "max_length": LENGTH}
    encoded = tokenizer(queries, passages, return_token_type_ids=True, **lengths)
    assert passage_halves(encoded) == encoded["token_type_ids"]
    bare = tokenizer(queries, passages, return_token_type_ids=False, **lengths)
    assert "token_type_ids" not in bare and passage_halves(bare) == encoded["token_type_ids"]


def test_a_folder_is_a_plain_encoder_that_says_how_it_scores(case: Case, tmp_path: Path) -> None:
    case.model.save(tmp_path / "reranker")
    loaded = CrossEncoder.load(tmp_path / "reranker")
    assert (loaded.pooling, loaded.max_length) == ("cosine", LENGTH)
    before, after = (scores_of(each, PAIRS, tmp_path / str(n)) for n, each in enumerate((case.model, loaded)))
    assert np.array_equal(before, after)
    own, read = case.model.model.state_dict(), AutoModel.from_pretrained(tmp_path / "reranker").state_dict()
    assert own.keys() == read.keys() and all(torch.equal(own[name], read[name]) for name in own)
    # transformers reports that the scoring layer is missing.
    _, said = AutoModelForSequenceClassification.from_pretrained(tmp_path / "reranker", output_loading_info=True)
    assert any(name.startswith("classifier") for name in said["missing_keys"])
    with pytest.raises(InputError, match="is a cross-encoder, which scores pairs and makes no vectors"):
        BiEncoder.load(tmp_path / "reranker")
    (tmp_path / "start").mkdir()
    fetch(str(tmp_path / "reranker"), None, "mean", 16, 24, tmp_path / "start")
    assert BiEncoder.load(tmp_path / "start").settings == read_settings(tmp_path / "start")
    config = tmp_path / "reranker" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"stillhouse_pooling": "maxsim"}))
    with pytest.raises(InputError, match="names the stillhouse_pooling 'maxsim', which is none of cls, cosine"):
        CrossEncoder.load(tmp_path / "reranker")


@pytest.mark.parametrize(("first", "second"), itertools.product(["cls", "cosine"], repeat=2))
def test_either_kind_starts_from_either_kind(tiny_model: Path, tmp_path: Path, first: str, second: str) -> None:
    torch.manual_seed(3)
    CrossEncoder.start(tiny_model, 24, pooling=first).save(tmp_path / "first")
    made = CrossEncoder.start(tmp_path / "first", LENGTH, layers=1, pooling=second)
    made.save(tmp_path / "second")
    loaded = CrossEncoder.load(tmp_path / "second")
    assert (loaded.pooling, loaded.max_length, loaded.model.config.num_hidden_layers) == (second, LENGTH, 1)
    entries = json.loads((tmp_path / "second" / "config.json").read_text())
    assert ("stillhouse_pooling" in entries) == (second == "cosine")
    assert ("sentence_transformers" in entries) == (second == "cls")
    found, expected = (scores_of(each.eval(), PAIRS, tmp_path / str(n)) for n, each in enumerate((loaded, made)))
    assert np.array_equal(found, expected)
