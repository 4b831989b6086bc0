"""Training the cross-encoder: its losses, parts of a batch, and the models to start from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from stillhouse.core.artifacts import digest_files
from stillhouse.core.context import Context
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.training import loop
from stillhouse.training.group_training import open_samplers
from stillhouse.training.negatives import Negatives
from stillhouse.training.reranker_training import RerankerLoss

Run = Callable[..., dict[str, Path]]
Options = dict[str, object]
SHORT = {"max_steps": 4, "batch_size": 4, "negatives_per_query": 2, "negatives_depth": 6, "precision": "fp32"}
SHORT |= {"max_length": 32, "eval_steps": 2, "metric_for_best_model": "loss"}


@pytest.fixture
def negatives(run_step: Run, small_corpus: Path) -> Path:
    return run_step("bm25", {"corpus": small_corpus}, negatives_depth=6)["negatives"]


class Setting:
    """A loss on a tiny cross-encoder, its samplers and its texts."""

    def __init__(
        self, corpus: Path, negatives: Path, start: Path, dropout: float, count: int, device: str = "cpu", **kind: str
    ) -> None:
        self.device = torch.device(device)
        torch.manual_seed(1)
        self.model = CrossEncoder.start(start, 32, **kind)
        for module in self.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = dropout
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.mul_(10 if parameter.ndim > 1 else 1)
        self.model.to(self.device).train()
        opened = Corpus.open(corpus)
        self.texts = np.array(passage_texts(opened), dtype=object)
        context = Context(Path(), "cpu", quiet=True)
        self.samplers = open_samplers(opened, Negatives.read(negatives), count, 6, 1, context)
        self.examples = np.arange(7)
        self.times = np.arange(7)

    def loss(self, mini_batch_size: int = 0) -> RerankerLoss:
        return RerankerLoss(self.model, self.texts, self.samplers, self.device, mini_batch_size)

    def scores(self, query: int, rows: list[int]) -> torch.Tensor:
        pairs = self.model.pairs([self.samplers["train"].texts[query]] * len(rows), list(self.texts[rows]))
        return self.model(*pairs.batch(range(len(rows)), self.device))


def gradients(setting: Setting, loss: RerankerLoss) -> tuple[float, list[torch.Tensor], int]:
    """Return the summed loss of a training step's parts, its gradients and the number of parts."""
    setting.model.zero_grad()
    total, parts = 0.0, 0
    for part in loss("train", loss.draw("train", setting.examples, setting.times)):
        part.backward()
        total, parts = total + part.item(), parts + 1
    return (
        total,
        [parameter.grad.clone() for parameter in setting.model.parameters() if parameter.grad is not None],
        parts,
    )


@pytest.mark.parametrize(("mini_batch_size", "parts"), [(0, 1), (1000, 1), (9, 3), (3, 7), (1, 7)])
def test_parts_of_a_batch_add_up_to_its_gradient(
    small_corpus: Path, negatives: Path, tiny_model: Path, mini_batch_size: int, parts: int
) -> None:
    setting = Setting(small_corpus, negatives, tiny_model, dropout=0, count=2)
    whole, expected, _ = gradients(setting, setting.loss())
    value, found, made = gradients(setting, setting.loss(mini_batch_size))
    assert made == parts and value == pytest.approx(whole, abs=1e-6)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, expected, strict=True))
    assert sum(grad.abs().sum().item() for grad in expected) > 0.1


@pytest.mark.parametrize("own", [{"learning_rate": 0.03}, {"pooling": "cosine", "learning_rate": 0.003}])
def test_a_killed_training_with_every_option_resumes_to_the_same_weights(
    run_step: Run, small_corpus: Path, negatives: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, own: Options
) -> None:
    inputs = {"corpus": small_corpus, "negatives": negatives, "init": tiny_model}
    options = SHORT | own | {"mini_batch_size": 6, "seed": 2}
    made = run_step("train-reranker", inputs, "whole", **options)
    start, *later = pd.read_csv(made["curves"] / "curves.csv")["heldout_loss"]
    assert min(later) < start - 5e-5, "nothing was learnt that a resumed run could lose"
    whole = made["reranker"]
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    real, drawn = RerankerLoss.__call__, []

    def killed(self: RerankerLoss, split: str, *given: np.ndarray):  # type: ignore[no-untyped-def]
        drawn.append(split)
        if drawn.count("train") == 4:
            raise KeyboardInterrupt
        return real(self, split, *given)

    with monkeypatch.context() as patch:
        patch.setattr(RerankerLoss, "__call__", killed)
        with pytest.raises(KeyboardInterrupt):
            run_step("train-reranker", inputs, "resumed", **options)
    resumed = run_step("train-reranker", inputs, "resumed", **options)["reranker"]
    assert digest_files(resumed) == digest_files(whole)


@pytest.mark.parametrize("start", ["bare", "with a head", "of fetch-model", "retriever"])
def test_a_re_ranker_starts_from_any_encoder(
    run_step: Run, small_corpus: Path, negatives: Path, tiny_model: Path, tmp_path: Path, start: str
) -> None:
    """Its encoder has exactly the folder's weights, whether or not a language-model head is saved with them."""
    from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

    folder = tiny_model
    if start == "with a head":
        torch.manual_seed(5)
        folder = tmp_path / "headed"
        AutoModelForMaskedLM.from_pretrained(tiny_model).save_pretrained(folder)
        AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
    elif start != "bare":
        folder = run_step("fetch-model", {}, model=str(tiny_model), query_length=16, passage_length=24)["encoder"]
    if start == "retriever":
        inputs = {"corpus": small_corpus, "encoder": folder, "negatives": negatives}
        own = {"max_steps": 1, "negatives_per_query": 1, "learning_rate": 0.01}
        folder = run_step("train-retriever", inputs, **own)["retriever"]
    inputs = {"corpus": small_corpus, "negatives": negatives, "init": folder}
    made = run_step("train-reranker", inputs, **(SHORT | {"learning_rate": 0.0, "max_steps": 1}))["reranker"]
    expected = AutoModel.from_pretrained(folder, add_pooling_layer=False).state_dict()
    found = AutoModel.from_pretrained(made, add_pooling_layer=False).state_dict()
    assert expected.keys() == found.keys() and all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize(
    ("init", "encoder", "max_length", "expected"),
    [
        ((16, 24), None, None, 40),
        ((8, 8), (16, 24), None, 40),  # the lengths are the main model's, whatever the re-ranker starts from
        ((16, 24), (32, 48), None, 64),  # it reads no more
        ((16, 24), (16, 24), 20, 20),
    ],
)
def test_the_length_of_a_pair_follows_from_those_of_query_and_passage(
    run_step: Run,
    small_corpus: Path,
    negatives: Path,
    tiny_model: Path,
    init: tuple[int, int],
    encoder: tuple[int, int] | None,
    max_length: int | None,
    expected: int,
) -> None:
    def fetched(lengths: tuple[int, int], name: str) -> Path:
        settings = {"model": str(tiny_model), "query_length": lengths[0], "passage_length": lengths[1]}
        return run_step("fetch-model", {}, name, **settings)["encoder"]

    inputs = {"corpus": small_corpus, "negatives": negatives, "init": fetched(init, "init")}
    inputs |= {"encoder": fetched(encoder, "main")} if encoder else {}
    settings = SHORT | {"max_steps": 1, "max_length": max_length}
    made = run_step("train-reranker", inputs, **settings)["reranker"]
    assert CrossEncoder.load(made).max_length == expected
