"""Separate towers and bags of words from `pretrain` through every later step, and where they are refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from exact_ranking import check_training
from passage_corpora import write_passages

from stillhouse.models.encoder import BiEncoder
from stillhouse.models.towers import BagOfWordsTower
from stillhouse.training.negatives import Negatives

pytestmark = pytest.mark.usefixtures("last_parameters")
Run = Callable[..., dict[str, Path]]
PAIRS = {"objective": "ict", "projection": 6, "query_length": 16, "passage_length": 32, "max_length": 32}
PAIRS |= {"max_steps": 2, "batch_size": 8, "heldout_fraction": 0.25, "precision": "fp32"}
TUNING = {"max_steps": 3, "batch_size": 4, "negatives_per_query": 2, "negatives_depth": 4, "precision": "fp32"}
TUNING |= {"learning_rate": 0.001}
KINDS: dict[str, dict[str, object]] = {
    "shared Transformer": {},
    "separate Transformers": {"towers": "separate"},
    "separate bags of words": {"pair_encoder": "bow_mlp", "towers": "separate"},
}


@pytest.fixture(autouse=True)
def narrow_bags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use word embeddings of width 16 instead of the paper's 4,096."""
    monkeypatch.setattr(BagOfWordsTower.__init__, "__defaults__", (16, 8))


@pytest.fixture(scope="module")
def two_sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a corpus of 18 passages of two sentences, with one query for each passage."""
    kinds = list(product(["red", "green", "blue"], ["bird", "fish", "tree"], ["one", "two"]))
    names = [f"{number}" for number in range(18)]
    texts = [f"The {c} {t} {n} sings and grows in the tree. The {n} {t} swims and grows." for c, t, n in kinds]
    titles = [f"{colour} {thing}" for colour, thing, _ in kinds]
    splits = ["train"] * 10 + ["dev"] * 4 + ["test"] * 4
    queries = {"query_id": names, "text": [f"where does the {c} {t} {n} sing" for c, t, n in kinds], "split": splits}
    qrels = {"query_id": names, "passage_id": names, "relevance": [1] * 18, "split": splits}
    tables = {"queries": queries, "qrels": qrels}
    return write_passages(
        tmp_path_factory.mktemp("two") / "corpus", texts, tables, passage_id=names, title=titles, article_id=names
    )


@pytest.fixture
def pretrained(run_step: Run, two_sentences: Path, tiny_model: Path) -> Callable[[str], Path]:
    def make(kind: str) -> Path:
        tokens = run_step("tokenize", {"corpus": two_sentences, "tokenizer": tiny_model}, max_length=32)["tokens"]
        return run_step("pretrain", {"tokens": tokens, "init": tiny_model}, **PAIRS, **KINDS[kind])["encoder"]

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_every_later_step_runs_on_what_pair_tasks_made(
    run_step: Run, two_sentences: Path, pretrained: Callable[[str], Path], kind: str, tmp_path: Path
) -> None:
    start = pretrained(kind)
    made = check_training(run_step, two_sentences, start, TUNING, tmp_path)
    before, after = (BiEncoder.load(folder).state_dict() for folder in (start, made["retriever"]))
    assert not [name for name in before if before[name].equal(after[name]) and ".pooler." not in name]
    found = {"corpus": two_sentences, "retriever": made["retriever"], "index": made["index"]}
    mined = Negatives.read(run_step("mine", found, negatives_depth=4, precision="fp32")["negatives"])
    assert mined.rows_QD.shape == (14, 4)


@pytest.mark.parametrize(("start", "towers"), [("shared Transformer", "separate"), ("separate Transformers", "shared")])
def test_towers_are_divided_and_joined_on_demand(
    run_step: Run, two_sentences: Path, pretrained: Callable[[str], Path], start: str, towers: str
) -> None:
    negatives = run_step("bm25", {"corpus": two_sentences}, negatives_depth=5)["negatives"]
    inputs = {"corpus": two_sentences, "encoder": pretrained(start), "negatives": negatives}
    retriever = run_step("train-retriever", inputs, towers=towers, **TUNING)["retriever"]
    encoder = BiEncoder.load(retriever)
    assert encoder.settings.towers == towers
    assert (retriever / "query").is_dir() == (towers == "separate")
    query, passage = encoder.tower("query").state_dict(), encoder.tower("passage").state_dict()
    same = [name for name in query if query[name].equal(passage[name]) and ".pooler." not in name]
    assert bool(same) == (towers == "shared")
