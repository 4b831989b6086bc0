"""The cross-encoders of `teachers.py`: what they read, what they learn from, and how their best step is chosen.

Shape suffixes: B questions of a step, K candidates of a question (column 0 the right one), P pairs, L tokens, D width,
Q dev questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from teachers_first_stage import FirstStage, Shortlist
from torch import Tensor

from stillhouse.context import Context
from stillhouse.corpus.query_sentences import query_sentences
from stillhouse.curves import CurveRow, Watch
from stillhouse.retrieval.fine_tuning.groups import GroupSampler
from stillhouse.retrieval.fine_tuning.reranker_training import LOSSES
from stillhouse.retrieval.models.cross_encoder import CrossEncoder
from stillhouse.retrieval.models.encoder import BiEncoder, inference, length_batches
from stillhouse.retrieval.models.pooling import pool
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.training.ahead import Ahead
from stillhouse.training.batches import chunks, epoch_batches, steps_for, times_seen
from stillhouse.training.loop import train
from stillhouse.training.settings import TrainingConfig

MAX_LENGTH = 128
"""Tokens of a question and its passage together; the retrievers read as many of the passage alone."""
QUESTIONS_AT_ONCE = 4
"""Questions that are back-propagated together; more need more memory."""
PATIENCE = 2
MEASUREMENTS = 3
"""Rankings of dev in a training, besides that of its start."""
DEV_RANKING, FUSED_LOSS = "dev_RR@10", "fused_loss"
"""What can choose a step: RR@10 of what is trained, or -log likelihood of the right passages by its fusion with BM25
and the retriever, of all candidates."""


class MeanCrossEncoder(CrossEncoder):
    """A cross-encoder whose scoring layer reads the mean of all states."""

    def forward(self, ids_PL: Tensor, mask_PL: Tensor, types_PL: Tensor) -> Tensor:
        base, options = self.model.base_model, {"attention_mask": mask_PL, "token_type_ids": types_PL}
        states_PLD = base(input_ids=ids_PL, **options).last_hidden_state
        pooled_PD = self.model.dropout(pool(states_PLD.float(), mask_PL, "mean"))
        scores_P: Tensor = self.model.classifier(pooled_PD).float().squeeze(-1)
        return scores_P


def new_model(folder: Path, pooling: str, seed: int) -> CrossEncoder:
    """A cross-encoder on the layers of an encoder; `pooling` is that of `train-reranker` or `mean`, as above."""
    torch.manual_seed(seed)
    if pooling == "mean":
        return MeanCrossEncoder.start(folder, MAX_LENGTH)
    return CrossEncoder.start(folder, MAX_LENGTH, pooling=pooling)


@dataclass(frozen=True)
class Drawn:
    """The texts of a step's pairs, which candidates there are, and what is added to each one's score."""

    questions_P: list[str]
    passages_P: list[str]
    candidate_BK: NDArray[np.bool_]
    added_BK: NDArray[np.float32]


class Examples(Protocol):
    """What a training learns from."""

    def __len__(self) -> int: ...

    def draw(self, examples_B: NDArray[np.int64], times_B: NDArray[np.int64]) -> Drawn: ...


class LabelledQuestions:
    """The `chosen` train questions of a sampler with their right passages and mined negatives. With `added`, its scores
    are added to the cross-encoder's, which then learns what they lack."""

    def __init__(
        self, sampler: GroupSampler, chosen: NDArray[np.int64], passages: list[str], added: FirstStage | None
    ) -> None:
        self._sampler = sampler
        self._chosen = chosen
        self._passages = passages
        self._added = added

    def __len__(self) -> int:
        return len(self._chosen)

    def draw(self, examples_B: NDArray[np.int64], times_B: NDArray[np.int64]) -> Drawn:
        examples_B = self._chosen[examples_B]
        groups = self._sampler.draw(examples_B, times_B)
        place_P, column_P = np.nonzero(groups.candidate_BK)
        rows_P = groups.rows_BK[place_P, column_P]
        texts_B = [str(text) for text in self._sampler.texts[examples_B]]
        added_BK = np.zeros(groups.rows_BK.shape, dtype=np.float32)
        if self._added is not None:
            added_BK[place_P, column_P] = self._added.pair_scores(texts_B, place_P, rows_P)
        questions = [texts_B[place] for place in place_P]
        return Drawn(questions, [self._passages[row] for row in rows_P], groups.candidate_BK, added_BK)


class SentencesOfTheCorpus:
    """Sentences as questions: the right passage is the sentence's own, without the sentence in every second example.

    The wrong passages are drawn from those that the first stage's retriever ranks highest for the sentence."""

    def __init__(
        self, stage: FirstStage, passages: list[str], count: int, negatives: int, depth: int, seed: int
    ) -> None:
        found = query_sentences(passages, min_words=5, language="en")
        chosen_S = np.sort(np.random.default_rng([seed, 7]).permutation(len(found.rows_S))[:count])
        self._rows_S, self._spans_S2 = found.rows_S[chosen_S], found.spans_S2[chosen_S]
        self._passages = passages
        self._texts = [passages[row][begin:end] for row, (begin, end) in zip(self._rows_S, self._spans_S2)]
        ranked_SK, _ = stage.hybrid.index.search(stage.vectors(self._texts), depth + 1)
        self._wrong = [rows_K[rows_K != row] for rows_K, row in zip(ranked_SK, self._rows_S)]
        self._negatives = negatives

    def __len__(self) -> int:
        return len(self._texts)

    def draw(self, examples_B: NDArray[np.int64], times_B: NDArray[np.int64]) -> Drawn:
        questions, passages = [], []
        for example in examples_B:
            own, (begin, end) = self._passages[self._rows_S[example]], self._spans_S2[example]
            without = f"{own[:begin]} {own[end:]}".strip() if example % 2 else own
            wrong = np.random.default_rng([int(example), 8]).choice(
                self._wrong[example], self._negatives, replace=False
            )
            passages += [without or own, *(self._passages[row] for row in wrong)]
            questions += [self._texts[example]] * (1 + self._negatives)
        shape = (len(examples_B), 1 + self._negatives)
        return Drawn(questions, passages, np.ones(shape, dtype=np.bool_), np.zeros(shape, dtype=np.float32))


def train_variant(
    model: CrossEncoder,
    examples: Examples,
    dev: Shortlist,
    passages: list[str],
    added_QK: NDArray[np.float32],
    loss_name: str,
    chosen_by: str,
    config: TrainingConfig,
    context: Context,
) -> list[CurveRow]:
    """Trains the model in place, keeps the step that is best on the dev shortlists, and returns the curves.

    Its score plus `added_QK` ranks them."""
    device = context.torch_device()
    of_scores: Callable[[Tensor, Tensor], Tensor] = LOSSES[loss_name]
    count = len(examples)
    batch, times = epoch_batches(count, config.batch_size, config.seed), times_seen(count, config.batch_size)
    steps = steps_for(count, config.batch_size, config.epochs, config.max_steps)
    config = replace(config, eval_steps=-(-steps // MEASUREMENTS))
    latest = np.zeros_like(added_QK)

    def batch_loss(step: int) -> Iterator[Tensor]:
        drawn = ahead(step)
        pairs = model.pairs(drawn.questions_P, drawn.passages_P)
        number_BK = np.full(drawn.candidate_BK.shape, -1)
        number_BK[drawn.candidate_BK] = np.arange(len(pairs))
        for part in chunks(len(number_BK), QUESTIONS_AT_ONCE):
            known_BK = torch.from_numpy(drawn.candidate_BK[part])
            scores_P = model(*pairs.batch(number_BK[part][drawn.candidate_BK[part]], device))
            scores_BK = torch.zeros(known_BK.shape).masked_scatter(known_BK, scores_P)
            added_BK = torch.from_numpy(drawn.added_BK[part])
            yield of_scores(scores_BK + added_BK, known_BK) * (len(part) / len(number_BK))

    def heldout_loss() -> float:
        nonlocal latest
        latest = dev_scores(model, dev, passages, device)
        return dev.loss(latest + added_QK)

    def signals() -> Mapping[str, float]:
        both = dev.with_score(latest)
        fused_QK = both.astype(np.float64) @ dev.weights(both)
        return {
            DEV_RANKING: float(dev.reciprocal_ranks(latest + added_QK).mean()),
            "fused_RR@10": float(dev.cross_validated(both).mean()),
            FUSED_LOSS: dev.loss(fused_QK),
        }

    with Ahead(lambda step: examples.draw(batch(step), times(step)), steps) as ahead:
        return train(model, batch_loss, heldout_loss, steps, config, context, Watch(signals, chosen_by, PATIENCE))


def dev_scores(model: CrossEncoder, asked: Shortlist, passages: list[str], device: torch.device) -> NDArray[np.float32]:
    """The cross-encoder's scores of a shortlist, float32 [Q, K], in length-sorted batches, as the caller computes."""
    query_P, rows_P = asked.pairs()
    scores_P = pair_scores(model, [asked.texts[query] for query in query_P], [passages[row] for row in rows_P], device)
    return scores_P.reshape(asked.rows_QK.shape)


def pair_scores(
    model: CrossEncoder, questions_P: list[str], passages_P: list[str], device: torch.device
) -> NDArray[np.float32]:
    pairs = model.pairs(questions_P, passages_P)
    scores_P = np.empty(len(pairs), dtype=np.float32)
    for rows in length_batches(pairs.ids.lengths(), InferenceConfig().batch_tokens):
        scores_P[rows] = model(*pairs.batch(rows, device)).float().cpu().numpy()
    return scores_P


def final_scores(model: CrossEncoder, asked: Shortlist, passages: list[str], context: Context) -> NDArray[np.float32]:
    """The same by a trained model."""
    with inference(model, context, InferenceConfig()) as device:
        return dev_scores(model, asked, passages, device)


def late_interaction(folder: Path, asked: Shortlist, passages: list[str], context: Context) -> NDArray[np.float32]:
    """Without training: the mean over the question's tokens of the highest cosine of their states, as a retriever has
    them, with those of the passage (ColBERT's MaxSim), float32 [Q, K]. Special tokens are left out."""
    encoder = BiEncoder.load(folder)
    rows_R = np.unique(asked.rows_QK)
    texts = {"query": encoder.queries(asked.texts), "passage": encoder.passages([passages[row] for row in rows_R])}
    states: dict[str, dict[int, Tensor]] = {}
    for role, of in texts.items():
        states[role] = {}
        tower = encoder.tower(role)
        with inference(encoder, context, InferenceConfig()) as device:
            for rows in length_batches(of.lengths(), InferenceConfig().batch_tokens):
                ids_BL, mask_BL = of.batch(rows, device)
                found_BLD = tower.encoder(input_ids=ids_BL, attention_mask=mask_BL.long()).last_hidden_state.float()
                found_BLD = torch.nn.functional.normalize(found_BLD, dim=-1)
                for row, length, found_LD in zip(rows, mask_BL.sum(1), found_BLD):
                    states[role][int(row)] = found_LD[1 : int(length) - 1].clone()
    places_QK = np.searchsorted(rows_R, asked.rows_QK)
    scores = [
        [float((states["query"][query] @ states["passage"][place].T).amax(1).mean()) for place in places_K]
        for query, places_K in enumerate(places_QK)
    ]
    return np.array(scores, dtype=np.float32)
