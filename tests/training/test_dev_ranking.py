"""How a model ranks the candidates of dev queries, and how training uses that to choose a checkpoint and to stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from stillhouse.core.context import Context
from stillhouse.core.curves import CurveRow, best_row, describe
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.models.encoder import BiEncoder
from stillhouse.training import dev_ranking
from stillhouse.training.dev_ranking import DevCandidates, sample, score_by_reranker, score_by_retriever
from stillhouse.training.group_training import Reads, open_samplers, train_on_groups
from stillhouse.training.groups import GroupSampler
from stillhouse.training.negatives import Negatives
from stillhouse.training.settings import GroupTrainingConfig

Run = Callable[..., dict[str, Path]]
DEV_ROWS = range(12, 18)
"""The positive passage of each dev query of the small corpus."""


@pytest.fixture
def negatives(run_step: Run, small_corpus: Path) -> Path:
    return run_step("bm25", {"corpus": small_corpus}, negatives_depth=8)["negatives"]


@pytest.fixture
def candidates(small_corpus: Path, negatives: Path) -> DevCandidates:
    sampler = GroupSampler(Corpus.open(small_corpus), Negatives.read(negatives), "dev", 0, 8, 1)
    return DevCandidates.of(sampler, np.arange(6), 5)


def test_the_measures_of_a_ranking_by_hand() -> None:
    """The positives of grades 2 and 1 have ranks 2 and 4. The other query's has rank 11: all tie, in corpus order."""
    rows = np.full((2, 14), -1, dtype=np.int32)
    rows[0, :5] = [7, 3, 5, 1, 9]
    rows[1] = [50, *range(40, 50), 51, 52, 53]
    qrels = pd.DataFrame({"query_id": ["a", "a", "b"], "passage_id": [7, 3, 50], "relevance": [2, 1, 1]})
    made = DevCandidates(np.array(["a", "b"], dtype=object), np.array(["", ""], dtype=object), rows, qrels)
    scores = np.array([0.8, 0.4, 0.9, 0.5, 0.1] + [0.0] * 14, dtype=np.float32)
    found = made.measured(scores).mean()
    assert found["RR@10"] == pytest.approx((1 / 2 + 0) / 2)
    ideal = 2 / math.log2(2) + 1 / math.log2(3)
    assert found["nDCG@10"] == pytest.approx((2 / math.log2(3) + 1 / math.log2(5)) / ideal / 2)
    scores[5] = 1e-6  # the positive now ranks before all those that it tied with
    assert made.measured(scores)["RR@10"].mean() == pytest.approx((1 / 2 + 1) / 2)
    with pytest.raises(FloatingPointError, match="not finite"):
        made.measured(np.where(np.arange(19) == 3, np.float32(np.nan), scores))


def test_candidates_are_all_positives_and_the_best_negatives(small_corpus: Path, negatives: Path) -> None:
    """This also holds with a teacher that scored few of them, because all negatives that were found are ranked."""
    corpus, made = Corpus.open(small_corpus), Negatives.read(negatives)
    scores = np.full(made.rows_QD.shape, np.nan, dtype=np.float32)
    for given in (None, np.where(np.arange(8) == 7, np.float32(1), scores)):
        sampler = GroupSampler(corpus, made, "dev", 1, 8, 1, given)
        found = DevCandidates.of(sampler, np.array([1, 4]), 3)
        expected = [[DEV_ROWS[query], *made.rows_QD[12 + query, :3].tolist()] for query in (1, 4)]
        assert found.rows_QK.tolist() == expected and list(found.query_ids) == ["q13", "q16"]
        assert found.qrels["passage_id"].tolist() == [13, 16]
        assert found.take(np.array([1])).rows_QK.tolist() == expected[1:]


def test_a_sample_is_part_of_a_larger_one() -> None:
    drawn = [set(sample(50, size, 7).tolist()) for size in (5, 20, 50)]
    assert drawn[0] < drawn[1] < drawn[2] == set(range(50)) and [len(some) for some in drawn] == [5, 20, 50]
    assert set(sample(50, 5, 8).tolist()) != drawn[0]


@pytest.mark.parametrize("towers", ["shared", "separate"])
def test_a_retriever_scores_each_pair_by_its_vectors(
    candidates: DevCandidates, small_corpus: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, towers: str
) -> None:
    """The slow version encodes text by text. The code encodes small batches, and no passage twice."""
    monkeypatch.setattr(dev_ranking, "BATCH_TOKENS", 40)
    monkeypatch.setattr(dev_ranking, "TEXTS_AT_ONCE", 5)
    monkeypatch.setattr(dev_ranking, "PAIRS_AT_ONCE", 4)
    encoder = BiEncoder.load(tiny_model, pooling="mean", query_length=16, passage_length=24, towers=towers).eval()
    if towers == "separate":
        for values in encoder.tower("query").parameters():
            values.data += 0.02 * torch.randn(values.shape, generator=torch.Generator().manual_seed(1))
    texts = np.array(passage_texts(Corpus.open(small_corpus)), dtype=object)
    read = []
    encoder.register_forward_pre_hook(lambda module, given: read.append((given[2], len(given[0]))))
    with torch.no_grad():
        found = score_by_retriever(encoder, candidates, texts, Context(Path(), "cpu", quiet=True))
        assert sum(count for role, count in read if role == "passage") == len(np.unique(candidates.rows_QK))
        assert sum(count for role, count in read if role == "query") == 6

        def vector(text: str, role: Any) -> Tensor:
            return encoder(*encoder.texts([text], role).batch([0], torch.device("cpu")), role)[0]

        slow = [
            float(vector(text, "query") @ vector(texts[row], "passage"))
            for text, rows in zip(candidates.texts, candidates.rows_QK)
            for row in rows
            if row >= 0
        ]
    np.testing.assert_allclose(found, slow, atol=1e-6)


def test_a_cross_encoder_scores_each_pair(
    candidates: DevCandidates, small_corpus: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev_ranking, "BATCH_TOKENS", 60)
    monkeypatch.setattr(dev_ranking, "TEXTS_AT_ONCE", 7)
    torch.manual_seed(0)
    model = CrossEncoder.start(tiny_model, 32).eval()
    texts = np.array(passage_texts(Corpus.open(small_corpus)), dtype=object)
    with torch.no_grad():
        found = score_by_reranker(model, candidates, texts, Context(Path(), "cpu", quiet=True))
        slow = [
            float(model(*model.pairs([text], [texts[row]]).batch([0], torch.device("cpu"))))
            for text, rows in zip(candidates.texts, candidates.rows_QK)
            for row in rows
            if row >= 0
        ]
    np.testing.assert_allclose(found, slow, atol=1e-6)


class Knob(nn.Module):
    """A single number, which each step of training raises by the learning rate."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(1))


def trained(
    folder: Path, corpus: Path, negatives: Path, best_at: float, **settings: Any
) -> tuple[Knob, list[CurveRow], list[float]]:
    """Train a `Knob` whose held-out loss always falls while its ranking is best where the number is `best_at`.

    Returns the model, its curves and the numbers at which it was measured.
    """
    config = GroupTrainingConfig(
        **{
            "epochs": None,
            "max_steps": 10,
            "batch_size": 4,
            "learning_rate": 1.0,
            "warmup_ratio": 0.0,
            "precision": "fp32",
            **settings,
        }
    )
    context = Context(folder, "cpu", quiet=True)
    samplers = open_samplers(Corpus.open(corpus), Negatives.read(negatives), 2, 8, 1, context)
    model, measured = Knob(), []

    def score(candidates: DevCandidates) -> np.ndarray:
        measured.append(model.place.item())
        query_P, row_P = candidates.pairs()
        right_P = np.array([DEV_ROWS[query] for query in np.arange(6)])[query_P] == row_P
        above = max(0, round(abs(model.place.item() - best_at)))  # how many negatives rank above the positive
        place_P = np.array([np.cumsum(query_P == query)[place] for place, query in enumerate(query_P)])
        return np.where(right_P, -above - 1.5, -place_P).astype(np.float32)

    def loss(split: str, drawn: None) -> Tensor:
        return -model.place.sum()

    reads = Reads(example=3 * 1000, heldout=3, passages_once=False)
    rows = train_on_groups(model, samplers, lambda *_: None, loss, score, reads, config, context)
    return model, rows, measured


def test_the_step_that_ranks_best_is_kept_though_the_loss_falls_on(
    tmp_path: Path, small_corpus: Path, negatives: Path
) -> None:
    found = {}
    for metric in ("loss", "rr10", "ndcg10"):
        (tmp_path / metric).mkdir()
        settings = {"metric_for_best_model": metric, "eval_steps": 1}
        model, rows, measured = trained(tmp_path / metric, small_corpus, negatives, best_at=2.7, **settings)
        assert [row.heldout_loss for row in rows] == sorted((row.heldout_loss for row in rows), reverse=True)
        assert len(measured) == (0 if metric == "loss" else 11)
        found[metric] = (model.place.item(), rows)
    last = -found["loss"][1][-1].heldout_loss
    assert found["loss"][0] == pytest.approx(last) and not found["loss"][1][-1].signals
    for metric, name in (("rr10", "dev_RR@10"), ("ndcg10", "dev_nDCG@10")):
        place, rows = found[metric]
        best = max(range(11), key=lambda step: (rows[step].signals[name], -rows[step].heldout_loss))
        assert 0 < best < 10 and place == pytest.approx(-rows[best].heldout_loss) and abs(place - 2.7) < 1
        assert rows[best].signals[name] == 1.0 > rows[-1].signals[name] and list(rows[0].signals) == [name]
        assert f"{name} {rows[0].signals[name]:.3f} to 1.000 (step {best})" in describe(rows, name)


def test_a_training_that_never_improves_keeps_its_start() -> None:
    """Later steps rank lower, or rank equally with a loss that is no lower."""
    points = [(0, 0.8, 0.7), (5, 0.7, 0.1), (10, 0.8, 0.9), (15, 0.8, 0.7)]
    rows = [CurveRow(step, 0.5, loss, {"dev_RR@10": ranking}) for step, ranking, loss in points]
    assert best_row(rows, "dev_RR@10") is rows[0]
    assert describe(rows, "dev_RR@10").endswith("(step 0); no step was better than the initial model, which is kept")
    better = CurveRow(20, 0.5, 0.6, {"dev_RR@10": 0.8})
    assert best_row([*rows, better], "dev_RR@10") is better


def test_a_training_stops_when_its_ranking_gets_no_better(tmp_path: Path, small_corpus: Path, negatives: Path) -> None:
    settings = {"metric_for_best_model": "rr10", "eval_steps": 1, "patience": 2}
    model, rows, _ = trained(tmp_path, small_corpus, negatives, best_at=1.0, **settings)
    values = [row.signals["dev_RR@10"] for row in rows]
    best = values.index(max(values))
    assert best > 0 and len(rows) == best + 3 < 11
    assert model.place.item() == pytest.approx(-rows[best].heldout_loss)


@pytest.mark.parametrize(
    ("settings", "moments", "queries"),
    [
        ({"eval_share": None}, 11, 6),  # no limit
        ({"eval_share": 0.1}, 11, 6),
        ({"metric_for_best_model": "rr10"}, 11, 6),  # 11 x 6 x (3 + 9) <= 10 x 4 x 3000 / 10
        ({"metric_for_best_model": "rr10", "eval_share": 0.006}, 6, 6),  # 6 x 72 <= 720 < 11 x 72
        ({"metric_for_best_model": "rr10", "eval_share": 0.002}, 3, 6),  # 3 x 6 x 12 <= 240 < 4 x 6 x 12
        ({"eval_share": 0.0005}, 3, 6),  # 3 x 6 x 3 <= 60 < 4 x 6 x 3
        ({"metric_for_best_model": "rr10", "eval_share": 0.002, "eval_steps": 1}, 11, 6),
        ({"metric_for_best_model": "rr10", "eval_queries": 2}, 11, 2),
    ],
)
def test_measurements_are_as_many_as_their_share_allows(
    tmp_path: Path,
    small_corpus: Path,
    negatives: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    moments: int,
    queries: int,
) -> None:
    """The held-out loss and the ranking use the same number of queries."""
    ranked = []
    real = DevCandidates.measured
    monkeypatch.setattr(DevCandidates, "measured", lambda self, scores: ranked.append(len(self)) or real(self, scores))
    bars: list[tuple[str, int | None]] = []
    bar = Context.bar

    def shown(self: Context, what: str, total: int | None, unit: str = "it", done: int = 0) -> Any:
        bars.append((what, total))
        return bar(self, what, total, unit, done)

    monkeypatch.setattr(Context, "bar", shown)
    _, rows, _ = trained(tmp_path, small_corpus, negatives, best_at=2.0, eval_depth=8, **settings)
    assert len(rows) == moments
    assert [total for what, total in bars if what == "held-out loss"] == [queries] * moments
    assert ranked == ([queries] * moments if "metric_for_best_model" in settings else [])
