"""Settings of encoding and of the bi-encoder's loss. No torch here: step modules read them to declare their flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from stillhouse.config import setting
from stillhouse.errors import InputError
from stillhouse.training.measurements import ENOUGH, FEWEST, MOST, READS_OF_TRAINING, SHARE
from stillhouse.training.settings import (
    TrainingConfig,
    gradient_cache_setting,
    mini_batch_setting,
    patience_setting,
    precision_setting,
    require_parts,
)

NO_MODEL = "none"
"""What `fetch-model` is asked for where a part of the run begins as the model that all else starts from."""


@dataclass(frozen=True, kw_only=True)
class NegativesConfig:
    """Which passages may be hard negatives, for every step that makes lists of them (`MiningQueries`)."""

    negatives_among: str = setting(
        "corpus",
        "which passages may be negatives: corpus = all, as in SimLM; answers = those that answer another query of the "
        "same split, for a corpus whose splits divide its passages: others would be learned by heart as wrong; "
        "train_answers = that for train queries alone, so that choices on dev queries are made among all passages",
        choices=("corpus", "answers", "train_answers"),
    )
    without_answers: bool = setting(
        False, "leave out passages that hold an answer of the query, by the rules of `Answer@k` (SimLM Appendix B)"
    )


@dataclass(frozen=True, kw_only=True)
class InferenceConfig:
    """Precision and batch size of encoding and scoring."""

    precision: str = precision_setting()
    batch_tokens: int = setting(8192, "padded tokens computed at once", minimum=1)


@dataclass(frozen=True, kw_only=True)
class ScoredPairsConfig(InferenceConfig):
    """Which pairs a teacher scores: a query's positives, and how many of its negatives."""

    depth: int = setting(200, "score this many of the best negatives of a query, or some of these", minimum=1)
    negatives_scored: int | None = setting(
        None,
        "score this many, those that a training with the same seed draws first; negatives_per_query x epochs of "
        "the training are all that it reads; null = all",
        minimum=1,
        former=0,
    )
    dev_negatives_scored: int | None = setting(
        None,
        "the same for dev queries, of which a training reads negatives_per_query; null = as many as of the others",
        minimum=1,
        former=0,
    )
    seed: int = setting(42, "seed of the order in which negatives are drawn", minimum=0)


@dataclass(frozen=True, kw_only=True)
class EncodingConfig(InferenceConfig):
    """How passages are encoded, and whether later runs may use their vectors."""

    cache_gib: float = setting(
        10.0,
        "passages' vectors are kept in the work area for later runs of the same model, those of all models together "
        "in at most this many GiB; 0 = none are kept or used",
        minimum=0.0,
    )


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    """Which kind of index, and how it is built; a setting that is for one kind alone says so."""

    kind: str = setting(
        "flat",
        "flat = exact search; hnsw = a graph, fast and large; ivfpq = clusters of vectors in few bytes; ivfsq8 = "
        "clusters of vectors in one byte a dimension; sq8 = one byte a dimension, all compared; binary_rescored = one "
        "bit a dimension, all compared, of which the best are compared again in one byte a dimension",
        choices=("flat", "hnsw", "ivfpq", "ivfsq8", "sq8", "binary_rescored"),
    )
    truncate_dim: int | None = setting(
        None, "keep this many of the first dimensions (for a Matryoshka model); null = all", minimum=1, former=0
    )
    hnsw_m: int = setting(32, "hnsw alone: links of a passage in the graph", minimum=2)
    hnsw_ef_construction: int = setting(
        128, "hnsw alone: candidates that are looked at when a passage is linked", minimum=1
    )
    hnsw_ef_search: int = setting(
        256, "hnsw alone: candidates that a query keeps, at least as many as are asked for", minimum=1
    )
    ivf_nlist: int | None = setting(
        None,
        "ivfpq and ivfsq8 alone: clusters; null = the square root of the passages times four, of 39 passages each at "
        "least",
        minimum=1,
        former=0,
    )
    ivf_nprobe: int = setting(32, "ivfpq and ivfsq8 alone: clusters that a query looks into", minimum=1)
    pq_m: int | None = setting(
        None,
        "ivfpq alone: bytes of a vector, a divisor of its width; null = one for four dimensions",
        minimum=1,
        former=0,
    )

    rescore_multiplier: int = setting(
        32, "binary_rescored alone: passages that are compared again, for each one that is asked for", minimum=1
    )

    def __post_init__(self) -> None:
        own_kinds = {
            "hnsw": ("hnsw",),
            "ivf": ("ivfpq", "ivfsq8"),
            "pq": ("ivfpq",),
            "rescore": ("binary_rescored",),
        }
        for field in fields(IndexConfig):
            kinds = own_kinds.get(field.name.split("_")[0], (self.kind,))
            if self.kind not in kinds and getattr(self, field.name) != field.default:
                names = " and ".join(kinds)
                raise InputError(f"{field.name} is for kind {names} alone and kind is {self.kind}; leave it out")


FORMS: Mapping[str, tuple[str, ...]] = {
    "simlm": ("query_passage", "positive_passage"),
    "simlm_code": ("query_passage", "positive_query", "query_query", "positive_positive"),
    "plain": ("query_passage",),
}
"""The contrastive losses: which blocks of scores each takes its negatives from (`contrastive.BLOCKS`). SimLM eq. 3, the
code of its authors, and CDMAE eq. 10."""


@dataclass(frozen=True, kw_only=True)
class DevRankingConfig:
    """Which dev queries are ranked to choose a model, and among how many candidates."""

    eval_queries: int | None = setting(
        None, "measure on at most this many dev queries, a sample drawn from the seed; null = all", minimum=1, former=0
    )
    eval_depth: int = setting(
        50, "candidates of a dev query that are ranked: its best negatives, this many, and its positives", minimum=1
    )


RANKINGS = {"rr10": "RR@10", "ndcg10": "nDCG@10"}
"""What the rankings that choose a model are called in settings, and by ir_measures."""


@dataclass(frozen=True, kw_only=True)
class GroupTrainingConfig(DevRankingConfig, TrainingConfig):
    """How a training on groups measures itself on dev queries, and which of its steps is kept."""

    metric_for_best_model: str = setting(
        "loss",
        "what chooses the step that is kept: loss = the lowest held-out loss of drawn groups; rr10, ndcg10 = the "
        "highest RR@10 or nDCG@10 of dev queries, whose positives and best eval_depth negatives are ranked: the start "
        "is kept where no step ranks them better",
        choices=("loss", *RANKINGS),
    )
    patience: int | None = patience_setting()
    eval_share: float | None = setting(
        None,
        "without eval_steps, measurements read at most this share of what the training reads, where a text that is "
        f"trained on counts {READS_OF_TRAINING} times: at {MOST} moments beside the start or, down to {FEWEST}, fewer, "
        f"then on fewer dev queries, and below {ENOUGH} of these at fewer moments again; null = {SHARE:g} where a "
        "ranking chooses, no limit where the loss does",
        minimum=0,
        maximum=1,
        former=0,
    )


@dataclass(frozen=True, kw_only=True)
class RetrieverConfig(GroupTrainingConfig):
    """The bi-encoder's loss, and how a batch's texts are encoded for it."""

    temperature: float = setting(0.02, "scores are divided by it", minimum=1e-6)
    alpha: float = setting(0.2, "weight of the contrastive loss beside the teacher's (SimLM eq. 5)", minimum=0)
    contrastive: str = setting(
        "simlm",
        "where negatives come from: simlm = beside the query and beside its positive (SimLM eq. 3); simlm_code = as "
        "the code of SimLM, queries and positives of the batch too; plain = beside the query alone (CDMAE eq. 10)",
        choices=tuple(FORMS),
    )
    compatibility_weight: float = setting(
        0.0,
        "with an old index alone: weight of the loss of the queries against its vectors, so that new queries may be "
        "asked of it (backward-compatible training, Shen et al. 2020); 0 = off",
        minimum=0,
    )
    matryoshka_dims: tuple[int, ...] | None = setting(
        None,
        "the loss is also that of vectors cut to these widths, as [64, 128]; null = of whole vectors alone",
        minimum=1,
        former="",
        separator="+",
    )
    mini_batch_size: int | None = mini_batch_setting()
    gradient_cache: bool = gradient_cache_setting()

    def __post_init__(self) -> None:
        if self.matryoshka_dims is not None and not self.matryoshka_dims:
            raise InputError("matryoshka_dims is an empty list; leave it out for whole vectors alone")
        if list(self.matryoshka_dims or ()) != sorted(set(self.matryoshka_dims or ())):
            raise InputError(f"matryoshka_dims must ascend, each named once: {list(self.matryoshka_dims or ())}")
        require_parts(self.gradient_cache, self.mini_batch_size)
