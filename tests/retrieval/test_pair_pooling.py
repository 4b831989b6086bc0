"""A cross-encoder without a scoring layer: the cosine of both halves, held against a slow version in float64."""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, RobertaConfig, RobertaModel

import stillhouse
from stillhouse.acceleration.unpadded import without_padding
from stillhouse.context import Context
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.errors import InputError
from stillhouse.evaluation.runs import read_run
from stillhouse.retrieval.fine_tuning.teacher import Teacher
from stillhouse.retrieval.models.cross_encoder import CrossEncoder, passage_halves
from stillhouse.retrieval.models.encoder import BiEncoder
from stillhouse.retrieval.models.encoder_settings import read_settings
from stillhouse.retrieval.models.pair_scores import score_pairs
from stillhouse.retrieval.models.source import fetch
from stillhouse.retrieval.models.tokenizer_files import load_tokenizer
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.serving.pair_scores import PairScores

Run = Callable[..., dict[str, Path]]
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


def test_nothing_at_padding_changes_a_score(case: Case) -> None:
    ids, mask, halves = case.model.pairs(*map(list, zip(*PAIRS))).batch(range(len(PAIRS)), CPU)
    beyond = torch.arange(ids.shape[1]) >= mask.sum(1, keepdim=True)
    assert beyond.any()
    with torch.no_grad():
        expected = case.model(ids, mask, halves)
        for value in (0, 1):
            found = case.model(ids.masked_fill(beyond, 7), mask, halves.masked_fill(beyond, value))
            torch.testing.assert_close(found, expected, rtol=0, atol=2e-4)


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


@pytest.fixture
def inputs(run_step: Run, small_corpus: Path, tiny_model: Path) -> dict[str, Path]:
    """What `train-reranker` reads, with a fine-tuned retriever as its start."""
    corpus = {"corpus": small_corpus}
    start = run_step("fetch-model", {}, model=str(tiny_model), pooling="mean", query_length=12, passage_length=20)
    found = corpus | {"negatives": run_step("bm25", corpus, negatives_depth=6)["negatives"]}
    settings = {"max_steps": 2, "batch_size": 4, "negatives_per_query": 1, "negatives_depth": 6}
    retriever = run_step("train-retriever", found | {"encoder": start["encoder"]}, **settings, learning_rate=0.003)
    return found | {"init": retriever["retriever"]}


def test_it_is_trained_from_a_retriever_and_every_step_uses_its_scores(
    run_step: Run, small_corpus: Path, inputs: dict[str, Path], tmp_path: Path
) -> None:
    settings = {"pooling": "cosine", "learning_rate": 0.003, "negatives_per_query": 3, "negatives_depth": 6}
    settings |= {"metric_for_best_model": "loss", "precision": "fp32", "batch_size": 6, "max_steps": 30, "epochs": 20}
    made = {way: run_step("train-reranker", inputs, way, padding=way, **settings) for way in ("kept", "none")}
    curves = {way: pd.read_csv(folders["curves"] / "curves.csv") for way, folders in made.items()}
    for rows in curves.values():
        assert rows["heldout_loss"].min() < rows["heldout_loss"][0] - 0.1
    assert curves["kept"]["heldout_loss"][0] == pytest.approx(curves["none"]["heldout_loss"][0], abs=1e-5)

    reranker = made["none"]["reranker"]
    model = CrossEncoder.load(reranker)
    assert (model.pooling, model.max_length) == ("cosine", 32)
    corpus, texts = Corpus.open(small_corpus), passage_texts(Corpus.open(small_corpus))
    questions = dict(zip(corpus.queries["query_id"], corpus.queries["text"]))
    own = {"corpus": small_corpus, "reranker": reranker}
    pairs_of = {"corpus": small_corpus, "negatives": inputs["negatives"], "reranker": reranker}

    teacher = run_step("score-pairs", pairs_of, precision="fp32", depth=6)["teacher"]
    positives = pd.read_parquet(teacher / "positives.parquet")
    pairs = [(questions[query], texts[row]) for query, row in zip(positives["query_id"], positives["row"])]
    expected = scores_of(model, pairs, tmp_path / "positives")
    np.testing.assert_allclose(positives["score"], expected, atol=1e-4)
    scores = np.load(run_step("score-shard", pairs_of, precision="fp32", depth=6)["scores"] / "scores.npy")
    np.testing.assert_array_equal(scores[: len(positives)], positives["score"])
    negatives = Teacher.read(teacher).negative_scores_QD[:, :6]
    assert negatives.mean() < expected.mean() - 0.5, "it learnt to tell right passages from wrong ones"

    candidates = {"candidates": run_step("bm25", {"corpus": small_corpus}, "lexical", depth=5)["run"]}
    run = read_run(run_step("rerank", own | candidates, precision="fp32", depth=5)["run"] / "test.trec")
    numbers = {passage: row for row, passage in enumerate(corpus.passages["passage_id"])}
    pairs = [(questions[query], texts[numbers[passage]]) for query, passage in zip(run["query_id"], run["passage_id"])]
    np.testing.assert_allclose(run["score"], scores_of(model, pairs, tmp_path / "run"), atol=1e-4)

    query, answers = pairs[0][0], [text for _, text in pairs[:4]]
    asked = [(query, text) for text in answers]
    expected = scores_of(model, asked, tmp_path / "asked")
    served, tokens = PairScores(reranker, Context(tmp_path, "cpu", quiet=True))(query, answers)
    np.testing.assert_allclose(served, expected, atol=1e-4)
    assert tokens == sum(map(len, model.pairs([query] * len(answers), answers).ids.ids))
    in_memory = stillhouse.predict(stillhouse.CrossEncoder.load(reranker), asked)
    np.testing.assert_allclose(in_memory, expected, atol=0.2)  # in bf16, if this machine is fast in it

    retriever = {"corpus": small_corpus, "retriever": inputs["init"]}
    index = run_step("index", retriever, precision="fp32")["index"]
    options = {"negatives_depth": 6, "reranker_margin": 0.5, "precision": "fp32"}
    mined = run_step("mine", retriever | {"index": index, "filter_reranker": reranker}, **options)["negatives"]
    rows_QD, queries = np.load(mined / "rows.npy"), pd.read_parquet(mined / "queries.parquet")
    right = dict(zip(corpus.qrels["query_id"], corpus.qrels["passage_id"]))
    for query, rows in zip(queries["query_id"], rows_QD):
        texts_of = [texts[row] for row in (numbers[right[query]], *rows[rows >= 0])]
        positive, *others = scores_of(model, [(questions[query], text) for text in texts_of], tmp_path / query)
        assert all(score <= positive - 0.5 + 1e-4 for score in others)
