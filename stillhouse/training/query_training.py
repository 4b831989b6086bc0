"""Training the query tower alone: passages keep their vectors in an index, and all of them can be negatives.

A step encodes its queries and multiplies them with the index. With a teacher, the loss is the distillation loss
(SimLM eq. 5): KL over a query's candidates plus alpha times the loss over the index. A tower that is smaller than the
passages' also imitates the large model's vectors. The dev queries are ranked in the whole index, and the tower that
ranks them best is kept; it may be the initial one.

Shape suffixes: B queries of a step, Q queries, N passages of a step, K candidates of a query, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.core.arrays import chunks
from stillhouse.core.context import Context
from stillhouse.core.curves import CurveRow, Watch, best_row
from stillhouse.core.errors import InputError, NotFinite
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.measures import measure_named, per_query_of_rows
from stillhouse.evaluation.relevance import JudgedQueries
from stillhouse.evaluation.samples import Samples
from stillhouse.evaluation.significance import Comparison, compare
from stillhouse.models.acceleration.device import on_device
from stillhouse.models.encoder import BiEncoder, EncoderTexts, length_batches
from stillhouse.models.settings import BATCH_TOKENS
from stillhouse.search.searcher import check_index, check_width
from stillhouse.search.vector_index import VectorIndex
from stillhouse.training.batches import epoch_batches, steps_for, times_seen
from stillhouse.training.dev_ranking import CUTOFF, qrels_of_rows, sample, signal
from stillhouse.training.fixed_passages import FixedPassages, Targets, cut_to_index, fixed_passages_loss
from stillhouse.training.groups import Groups, GroupSampler, asked_queries
from stillhouse.training.imitation import Imitation
from stillhouse.training.loop import train
from stillhouse.training.losses import distillation_loss
from stillhouse.training.negatives import Negatives
from stillhouse.training.settings import RANKINGS, QueryTrainingConfig
from stillhouse.training.teacher import Teacher, TeacherScores


@dataclass(frozen=True)
class Drawn:
    """The numbers of a step's queries, the passages they are ranked among, and the groups that a teacher scored."""

    queries_B: NDArray[np.int64]
    targets: Targets
    groups: Groups | None


@dataclass(frozen=True)
class QueryLoss:
    """The loss of train or dev queries against an index."""

    encoder: BiEncoder
    passages: FixedPassages
    texts: EncoderTexts
    sampler: GroupSampler | None
    teacher: TeacherScores | None
    config: QueryTrainingConfig
    device: torch.device

    def __len__(self) -> int:
        return len(self.texts)

    def draw(self, queries_B: NDArray[np.int64], times_B: NDArray[np.int64], step: int) -> Drawn:
        """Draw the passages of a step for queries that were seen `times_B` times before."""
        groups = self.sampler.draw(queries_B, times_B) if self.sampler else None
        held = groups.rows_BK[groups.candidate_BK] if groups else None
        return Drawn(queries_B, self.passages.targets(queries_B, step, held), groups)

    def __call__(self, drawn: Drawn) -> Tensor:
        """The mean loss of the queries."""
        targets, config = drawn.targets, self.config
        queries_BD = self.encoder(*self.texts.batch(drawn.queries_B, self.device), "query")
        with torch.autocast(self.device.type, enabled=False):
            queries_BD = cut_to_index(queries_BD.float(), self.passages.index.width, self.encoder.settings.normalize)
            scores_BN = queries_BD @ targets.vectors_ND.T / config.temperature
            loss = fixed_passages_loss(scores_BN, targets.right, targets.never_negative)
            if self.teacher is None or drawn.groups is None:
                return loss
            teacher_BK, known_BK = (on_device(part, self.device) for part in self.teacher.of(drawn.groups))
            columns_BK = targets.columns(np.maximum(drawn.groups.rows_BK, drawn.groups.rows_BK[:, :1].min()))
            columns_BK = np.where(drawn.groups.candidate_BK, columns_BK, 0)
            student_BK = scores_BN.gather(1, on_device(columns_BK, self.device))
            return distillation_loss(student_BK, teacher_BK, known_BK) + config.alpha * loss


class DevRanking:
    """How well a query tower ranks the judged dev queries in a whole index."""

    def __init__(self, encoder: BiEncoder, index: VectorIndex, corpus: Corpus, size: int | None, seed: int) -> None:
        judged = JudgedQueries(corpus)
        if not len(judged):
            raise InputError("the corpus has no judged dev queries to choose with; ingest with a dev_fraction above 0")
        kept = sample(len(judged), size or len(judged), seed)
        self._encoder, self._index = encoder, index
        self._ids = np.array(judged.query_ids, dtype=object)[kept]
        self._texts = encoder.queries([judged.texts[number] for number in kept])
        self._qrels = qrels_of_rows(corpus, self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def vectors(self, device: torch.device) -> NDArray[np.float32]:
        """The queries' vectors [Q, D] from the current tower, cut to the index's width."""
        out_QD = np.empty((len(self), self._index.width), np.float32)
        for rows in length_batches(self._texts.lengths(), BATCH_TOKENS):
            made_BD = self._encoder(*self._texts.batch(rows, device), "query").float()
            made_BD = cut_to_index(made_BD, self._index.width, self._encoder.settings.normalize)
            out_QD[rows] = made_BD.cpu().numpy()
        if not np.isfinite(out_QD).all():
            raise NotFinite("a dev query's vector is not finite; lower learning_rate")
        return out_QD

    def measured(self, device: torch.device) -> pd.DataFrame:
        """RR@10 and nDCG@10 of every query, float64, indexed by query id."""
        rows_QK, _ = self._index.search(self.vectors(device), CUTOFF)
        measures = [measure_named(name) for name in RANKINGS.values()]
        return per_query_of_rows(self._qrels, self._ids, rows_QK, measures)


@dataclass(frozen=True)
class QueryTraining:
    """The curves of a training, the mean dev figures at start and end, and the gain between them."""

    rows: list[CurveRow]
    start: Mapping[str, float]
    end: Mapping[str, float]
    gain: Comparison
    metric: str

    @property
    def measure(self) -> str:
        """The ir_measures name of the measure that chose the step."""
        return RANKINGS[self.metric]

    @property
    def metric_in_curves(self) -> str:
        """The curves' name of the measure that chose the step."""
        return signal(self.metric)

    @property
    def kept_step(self) -> int:
        return best_row(self.rows, self.metric_in_curves).step


def train_query_tower(
    encoder: BiEncoder,
    index: VectorIndex,
    corpus: Corpus,
    negatives: Negatives | None,
    teacher: Teacher | None,
    config: QueryTrainingConfig,
    context: Context,
    imitation: Imitation | None = None,
) -> QueryTraining:
    """Train the separate query tower of `encoder` in place; the rest of the encoder does not change.

    `index` holds the passages' vectors from its passage tower. Raises `InputError` for an index of other passages or
    of another width, for a corpus without train queries or judged dev queries, and for a teacher without negatives.
    """
    assert "query" in encoder.towers, "the queries share the passages' tower"
    check_index(index, corpus)
    check_width(encoder, index)
    if teacher is not None and negatives is None:
        raise InputError("a teacher needs the negatives that it scored; give them as --negatives")
    device = context.torch_device()
    losses = []
    for split in ("train", "dev"):
        ids, texts = asked_queries(corpus, split)
        sampler = scores = None
        if negatives is not None:
            most, depth = config.negatives_per_query, config.negatives_depth
            scores_QD = teacher.negative_scores_QD if teacher else None
            sampler = GroupSampler(corpus, negatives, split, most, depth, config.seed, scores_QD)
            assert list(sampler.query_ids) == ids, "a corpus holds no query without a relevant passage"
            scores = TeacherScores(teacher, sampler) if teacher else None
        passages = FixedPassages(index, corpus, ids, config.passages_at_once, config.seed, device)
        losses.append(QueryLoss(encoder, passages, encoder.queries(texts), sampler, scores, config, device))
    dev = DevRanking(encoder, index, corpus, config.eval_queries, config.seed)
    of_train, of_dev = losses
    count, measured_on = len(of_train), sample(len(of_dev), config.eval_queries or len(of_dev), config.seed)
    tower = encoder.tower("query")
    batch, times = epoch_batches(count, config.batch_size, config.seed), times_seen(count, config.batch_size)
    # Epochs are those of the larger part: a smaller tower learns more from the sentences than from the queries.
    in_epoch = count if imitation is None else max(count, len(imitation))
    steps = steps_for(in_epoch, config.batch_size, config.epochs, config.max_steps)

    def batch_loss(step: int) -> Iterator[Tensor]:
        yield of_train(of_train.draw(batch(step), times(step), step))
        if imitation is not None:
            yield imitation(step) / config.temperature

    def heldout_losses() -> Iterator[tuple[int, Tensor]]:
        for places in chunks(len(measured_on), config.batch_size):
            part = measured_on[places]
            # Every held-out loss uses the sample of step 0, so all of them rank among the same passages.
            yield len(part), of_dev(of_dev.draw(part, np.zeros_like(part), 0))

    def ranking() -> Mapping[str, pd.Series]:
        # The chosen metric alone: the report marks the step where the curve's ranking is best.
        metric = config.metric_for_best_model
        return {signal(metric): dev.measured(device)[RANKINGS[metric]]}

    def values() -> pd.DataFrame:
        encoder.to(device).eval()
        with torch.no_grad():
            return dev.measured(device)

    before = values()
    watch = Watch(ranking, signal(config.metric_for_best_model), config.patience)
    rows = train(tower, batch_loss, heldout_losses, steps, config, context, watch)
    after = values()
    difference_Q = (after - before)[RANKINGS[config.metric_for_best_model]].to_numpy()
    [gain] = compare(difference_Q[:, None], Samples(seed=config.seed))
    start, end = ({name: float(table[name].mean()) for name in RANKINGS.values()} for table in (before, after))
    return QueryTraining(rows, start, end, gain, config.metric_for_best_model)
