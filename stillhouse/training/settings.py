"""The settings that all training shares, and those of retrievers, re-rankers and their negatives.

No torch here, because step modules read them to declare their flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stillhouse.core.config import same_setting, setting
from stillhouse.core.errors import InputError
from stillhouse.models.settings import InferenceConfig
from stillhouse.training.measurements import ENOUGH, FEWEST, MOST, READS_OF_TRAINING, SHARE


def mini_batch_setting(of: str = "") -> Any:
    """How many texts are encoded together; `of` restricts it in the help text."""
    return setting(
        None,
        f"{of}queries or passages encoded together, grouped by length; null = the whole batch, or groups of similar "
        "length if faster",
        minimum=1,
    )


def gradient_cache_setting(of: str = "") -> Any:
    """Whether a batch's texts are encoded twice; `of` restricts it in the help text."""
    return setting(False, f"{of}encode every text twice, so a batch needs the memory of mini_batch_size texts")


def patience_setting(default: int | None = None) -> Any:
    """When to stop without improvement."""
    return setting(default, "stop after this many measurements in a row without improvement; null = never", minimum=1)


def eval_share_setting(heldout: str = "dev queries", text: str = "text") -> Any:
    """The share of a training that its measurements may read (`measurements.within`)."""
    return setting(
        SHARE,
        f"without eval_steps, evaluation reads at most this share of what training reads; a trained {text} counts "
        f"{READS_OF_TRAINING} times. To fit, {MOST} measurements become {FEWEST}, then {heldout} become fewer, down "
        f"to {ENOUGH}, then measurements again, then {heldout}. null = no limit",
        minimum=0,
        maximum=1,
    )


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Length, batch, optimiser and precision of a training."""

    epochs: float | None = setting(
        3.0, "passes over the training examples, at least one step; null = only max_steps counts", minimum=0
    )
    max_steps: int | None = setting(None, "stop after this many steps; null = after the epochs", minimum=1)
    batch_size: int = setting(64, "examples per step", minimum=1)
    learning_rate: float = setting(2e-5, "peak learning rate of AdamW", minimum=0)
    warmup_ratio: float = setting(0.1, "fraction of steps in which the learning rate rises", minimum=0, maximum=1)
    warmup_steps: int | None = setting(None, "the same as a number of steps; null = use warmup_ratio", minimum=1)
    last_step: int | None = setting(
        None,
        "stop after this step of the full schedule, as CDMAE does at step 80k of its 20 epochs; null = run to the end",
        minimum=1,
    )
    weight_decay: float = setting(0.0, "weight decay of AdamW, except for biases and layer norms", minimum=0)
    max_grad_norm: float | None = setting(1.0, "clip gradients to this norm; null = no clipping", minimum=0)
    eval_steps: int | None = setting(None, "steps between held-out losses; null = ten per training", minimum=1)
    precision: str = same_setting(InferenceConfig, "precision")
    padding: str = setting(
        "auto",
        "none = compute no padding, with attention within each text; kept = pad texts to the longest in the batch; "
        "auto = none on a CPU, kept on a GPU",
        choices=("auto", "none", "kept"),
    )
    seed: int = setting(42, "seed of every random choice", minimum=0)


def require_parts(gradient_cache: bool, mini_batch_size: int | None) -> None:
    """Raises `InputError` for gradient caching of a batch with a single part."""
    if gradient_cache and not mini_batch_size:
        raise InputError("gradient_cache saves no memory without mini_batch_size; set it, for example to 64")


@dataclass(frozen=True, kw_only=True)
class NegativesConfig:
    """Which passages may be hard negatives, for every step that lists them (`MiningQueries`)."""

    negatives_among: str = setting(
        "corpus",
        "which passages may be negatives: corpus = all, as in SimLM; answers = only those that answer another query of "
        "the same split, for a corpus whose splits divide its passages: those of the other splits would be memorized "
        "as wrong; train_answers = the same, but all passages for dev queries, which choose models",
        choices=("corpus", "answers", "train_answers"),
    )
    without_answers: bool = setting(
        False, "leave out passages that hold an answer to the query, by the rules of `Answer@k` (SimLM Appendix B)"
    )


@dataclass(frozen=True, kw_only=True)
class ScoredPairsConfig(InferenceConfig):
    """Which pairs a teacher scores: a query's positives and some of its negatives."""

    kind: str = setting(
        "cross-encoder",
        "cross-encoder = its raw scores (SimLM eq. 5); best = whichever ranks the dev queries' candidates best: the "
        "cross-encoder, BM25, or a weighted sum of two or all of these and the retriever, calibrated on the dev "
        "queries",
        choices=("cross-encoder", "best"),
    )
    depth: int = setting(200, "score negatives from this many of a query's best", minimum=1)
    negatives_scored: int | None = setting(
        None,
        "score this many: those that a training with the same seed draws first, which reads at most "
        "negatives_per_query x epochs of them; null = all",
        minimum=1,
    )
    dev_negatives_scored: int | None = setting(
        None,
        "the same for dev queries, where a training reads negatives_per_query; null = all mined negatives at any "
        "depth, to compare the teacher with its student",
        minimum=1,
    )
    seed: int = setting(42, "seed of the order of drawn negatives", minimum=0)


FORMS: Mapping[str, tuple[str, ...]] = {
    "simlm": ("query_passage", "positive_passage"),
    "simlm_code": ("query_passage", "positive_query", "query_query", "positive_positive"),
    "plain": ("query_passage",),
}
"""The contrastive losses and the blocks of scores that each takes its negatives from (`contrastive.BLOCKS`): SimLM
eq. 3, the code of its authors, and CDMAE eq. 10."""


@dataclass(frozen=True, kw_only=True)
class DevRankingConfig:
    """Which dev queries are ranked to choose a model, and among how many candidates."""

    eval_queries: int | None = setting(
        None, "evaluate on at most this many dev queries, sampled from the seed; null = all", minimum=1
    )
    eval_depth: int = setting(
        50, "how many of a dev query's best negatives are ranked together with its positives", minimum=1
    )


RANKINGS = {"rr10": "RR@10", "ndcg10": "nDCG@10"}
"""The measures that can choose a model: names in settings, and in ir_measures."""


def best_model_setting(default: str) -> Any:
    """The setting `metric_for_best_model` of a training on groups."""
    return setting(
        default,
        "which step to keep: loss = the one with the lowest held-out loss of drawn groups; rr10, ndcg10 = the one "
        "with the highest RR@10 or nDCG@10 on dev queries, ranking their positives and best eval_depth negatives, or "
        "the initial model if none is better",
        choices=("loss", *RANKINGS),
    )


@dataclass(frozen=True, kw_only=True)
class GroupTrainingConfig(DevRankingConfig, TrainingConfig):
    """How training on groups is measured on dev queries, and which step is kept."""

    metric_for_best_model: str = best_model_setting("loss")
    patience: int | None = patience_setting()
    eval_share: float | None = eval_share_setting()


@dataclass(frozen=True, kw_only=True)
class RerankerConfig(GroupTrainingConfig):
    """How a query's candidates are drawn for a cross-encoder, and compared."""

    metric_for_best_model: str = best_model_setting("rr10")
    learning_rate: float = setting(3e-5, "peak learning rate of AdamW", minimum=0)
    negatives_per_query: int = setting(63, "negatives to train on per query and epoch", minimum=1)
    negatives_depth: int = setting(200, "draw negatives from this many of the highest-ranked ones", minimum=1)
    mini_batch_size: int | None = setting(
        None,
        "back-propagate the queries of this many pairs at a time, to save memory; null = the whole batch",
        minimum=1,
    )


@dataclass(frozen=True, kw_only=True)
class RetrieverConfig(GroupTrainingConfig):
    """A batch's passages, the bi-encoder's loss, and how it encodes a batch's texts."""

    negatives_per_query: int = setting(15, "hard negatives drawn per query and epoch", minimum=0)
    negatives_depth: int = setting(200, "draw them from this many top-ranked negatives", minimum=1)
    temperature: float = setting(0.02, "divide scores by this", minimum=1e-6)
    alpha: float = setting(0.2, "weight of the contrastive loss, with a teacher (SimLM eq. 5)", minimum=0)
    contrastive: str = setting(
        "simlm",
        "what negatives are compared with: simlm = the query and its positive (SimLM eq. 3); simlm_code = as in the "
        "code of SimLM, also the batch's queries and positives; plain = the query alone (CDMAE eq. 10)",
        choices=tuple(FORMS),
    )
    matryoshka_dims: tuple[int, ...] | None = setting(
        None, "also train vectors cut to these widths, as [64, 128]; null = whole vectors only", minimum=1
    )
    mini_batch_size: int | None = mini_batch_setting()
    gradient_cache: bool = gradient_cache_setting()
    gradient_checkpointing: bool = setting(
        False, "compute activations twice instead of keeping them: takes a third longer and a fraction of the memory"
    )
    lora_rank: int = setting(
        0,
        "train a change of this rank to each weight matrix of the Transformer (LoRA), for large models; it is merged "
        "at the end, and apart in adapter/; 16 is usual, with a learning rate of 1e-4; 0 = train all weights",
        minimum=0,
    )
    frozen_weights: str = setting(
        "fp32",
        "bf16 = with lora_rank, keep the matrices themselves in bf16, half the memory; their changes and the states of "
        "AdamW stay in fp32; needs precision: bf16",
        choices=("fp32", "bf16"),
    )

    def __post_init__(self) -> None:
        if list(self.matryoshka_dims or ()) != sorted(set(self.matryoshka_dims or ())):
            raise InputError(f"matryoshka_dims must ascend without repeats: {list(self.matryoshka_dims or ())}")
        require_parts(self.gradient_cache, self.mini_batch_size)
        if self.frozen_weights == "bf16" and (not self.lora_rank or self.precision != "bf16"):
            raise InputError("frozen_weights: bf16 needs lora_rank and precision: bf16; set both, or leave it at fp32")
        if self.gradient_checkpointing and self.padding == "none":
            raise InputError("gradient_checkpointing computes padding; set padding: kept, or leave one of them out")


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig(TrainingConfig):
    """How a language model learns to write the questions of a corpus."""

    epochs: float | None = setting(
        1.0, "passes over the training examples, at least one step; null = only max_steps counts", minimum=0
    )
    batch_size: int = setting(8, "examples per step", minimum=1)
    learning_rate: float = setting(5e-5, "peak learning rate of AdamW", minimum=0)
    patience: int | None = patience_setting(3)
    max_pairs: int | None = setting(
        2000, "train on at most this many pairs of a question and its passage, a seeded sample; null = all", minimum=1
    )
    lora_rank: int = same_setting(RetrieverConfig, "lora_rank")


@dataclass(frozen=True, kw_only=True)
class QueryTrainingConfig(TrainingConfig):
    """The loss over an index, how the kept step is chosen, and the negatives drawn for a teacher."""

    temperature: float = setting(0.02, "divide scores by this", minimum=1e-6)
    passages_at_once: int = setting(
        262_144,
        "passages used as negatives in a step: the whole index if it is no larger, else a new sample of this size in "
        "each step; hard negatives are added",
        minimum=1,
    )
    negatives_per_query: int = setting(15, "only with negatives: hard negatives drawn per query and epoch", minimum=0)
    negatives_depth: int = setting(200, "draw negatives from this many of the highest-ranked ones", minimum=1)
    alpha: float = setting(0.2, "with a teacher only: weight of the loss over the index", minimum=0)
    metric_for_best_model: str = setting(
        "ndcg10",
        "keep the step that ranks dev queries best in the whole index, by rr10 or ndcg10; keep the initial model if "
        "no step is better",
        choices=tuple(RANKINGS),
    )
    patience: int | None = patience_setting()
    eval_queries: int | None = same_setting(DevRankingConfig, "eval_queries")


@dataclass(frozen=True, kw_only=True)
class ProjectionTrainingConfig(TrainingConfig):
    """The loss of a matrix on fixed vectors, and how long it trains."""

    epochs: float | None = setting(20.0, "passes over the training queries; null = only max_steps counts", minimum=0)
    max_steps: int | None = setting(400, "stop after this many steps; null = after the epochs", minimum=1)
    batch_size: int = setting(32, "queries per step", minimum=1)
    learning_rate: float = setting(3e-4, "peak learning rate of AdamW", minimum=0)
    temperature: float = setting(0.05, "divide scores by this", minimum=1e-6)
    passages_at_once: int = setting(
        16_384, "passages used as negatives in a step: the whole index if it is no larger, else a new sample", minimum=1
    )
