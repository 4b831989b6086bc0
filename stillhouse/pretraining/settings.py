"""The settings of pre-training. Does not import torch, because the step module reads it to declare its flags."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stillhouse.core.config import setting
from stillhouse.core.errors import InputError
from stillhouse.pretraining.objectives import NAMES, Corruption, Objective, describe, find_objective
from stillhouse.pretraining.pairs.settings import PAIR_OBJECTIVES, PairConfig
from stillhouse.training.settings import TrainingConfig, eval_share_setting, patience_setting

NONE = "none"
"""No pre-training, for a model that was already pre-trained."""


@dataclass(frozen=True, kw_only=True)
class CountingConfig:
    """How n-grams are counted: settings of `count` and `importance`."""

    window: int = setting(4, "longest n-gram to count: L of CDMAE eq. 8", minimum=2, maximum=8)
    memory_mib: int = setting(1024, "MiB of memory for counting; the rest goes to disk", minimum=1)


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig(PairConfig, TrainingConfig):
    """Settings of `pretrain`. Rates, length and learning rate follow SimLM Table 11; those of pair tasks follow Chang
    et al."""

    objective: str = setting(
        "simlm",
        f"what to learn:{describe()}\n  none: nothing; keep the model unchanged\n ",
        choices=(*NAMES, *PAIR_OBJECTIVES, NONE),
    )
    trainable: str = setting(
        "all",
        "all = the whole model; head = only the language-model head; missing_head = head if the encoder came without "
        "one, else no training",
        choices=("all", "head", "missing_head"),
    )
    encoder_mlm_probability: float = setting(0.3, "share of the encoder's tokens to corrupt", minimum=0.01, maximum=0.9)
    decoder_mlm_probability: float = setting(
        0.5,
        "share of the decoder's tokens to corrupt, or to hide from each position (enhanced_decoding)",
        minimum=0.01,
        maximum=1,
    )
    mask_unit: str = setting(
        "token",
        "unit of random masking: token = single tokens, as in the papers; word = whole words, as in SimLM's code",
        choices=("token", "word"),
    )
    mask_replacement: str | None = setting(
        None,
        "what masked tokens become: null = the objective's choice; mask = [MASK]; 80_10_10 = [MASK], a random token or "
        "the token itself, as in BoW's code for its objectives",
        choices=("mask", "80_10_10"),
    )
    decoder_layers: int | None = setting(None, "layers of the decoder; null = the objective's choice", minimum=1)
    decoder_init: str | None = setting(
        None,
        "decoder initialisation: null = the objective's choice; last_layers = copies of the encoder's; random",
        choices=("last_layers", "random"),
    )
    bottleneck: str | None = setting(
        None,
        "input of the decoder: null = the objective's choice; raw = the vector itself; linear = a projection of it",
        choices=("raw", "linear"),
    )
    importance_noise: float = setting(1.0, "standard deviation of the noise on AMI (CDMAE Algorithm 1)", minimum=0)
    generator_weight: float = setting(
        0.2, "weight of the loss of a jointly trained generator (SimLM's code)", minimum=0
    )
    max_length: int | None = setting(
        None,
        "tokens per passage, including [CLS] and [SEP]; null = the passage_length of the model to start from (144 in "
        "SimLM Table 11)",
        minimum=3,
    )
    heldout_fraction: float = setting(
        0.05, "share of the passages to hold out for measuring the loss", minimum=0.0001, maximum=0.5
    )
    max_eval_samples: int = setting(4096, "hold out at most this many passages", minimum=1)
    learning_rate: float = setting(3e-4, "peak learning rate of AdamW", minimum=0)
    gradient_accumulation_steps: int = setting(
        1, "compute a step's batch in this many parts, one after another, to save memory", minimum=1
    )
    bucket_steps: int | None = setting(
        64,
        "sort the passages of this many steps by length, so that batches need little padding; null = draw batches at "
        "random",
        minimum=1,
    )
    signals: bool = setting(True, "also measure indicators of retrieval quality with every held-out loss")
    metric_for_best_model: str = setting(
        "heldout_loss",
        "metric that selects the best parameters: heldout_loss = the objective's own; ict_RR@10 = retrieval on ICT "
        "pairs of held-out passages; heldout_mlm_loss; coverage@20 = input tokens among the vector's top 20 (BoW "
        "Algorithm 1)",
        choices=("heldout_loss", "ict_RR@10", "heldout_mlm_loss", "coverage@20"),
    )
    patience: int | None = patience_setting()
    eval_share: float | None = eval_share_setting("held-out passages", "passage")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trainable != "all" and self.objective != "mlm":
            raise InputError(f"trainable: {self.trainable} needs objective mlm; use that, or trainable: all")
        if self.metric_for_best_model != "heldout_loss" and not self.signals:
            raise InputError(
                f"metric_for_best_model {self.metric_for_best_model!r} is a signal and needs signals: true"
            )
        if self.objective == NONE:
            return
        objective = find_objective(self.objective)
        if objective.pairs and self.gradient_accumulation_steps > 1:
            raise InputError(
                "pair tasks take their negatives from the whole batch, which gradient_accumulation_steps would split; "
                "set mini_batch_size and gradient_cache instead"
            )
        nested = any(corruption.draw == "nested" for corruption in objective.corruptions)
        if nested and self.decoder_mlm_probability < self.encoder_mlm_probability:
            raise InputError(
                f"decoder_mlm_probability {self.decoder_mlm_probability} must be at least encoder_mlm_probability "
                f"{self.encoder_mlm_probability}: tokens corrupted for the encoder are also corrupted for the decoder"
            )

    @property
    def passage_tokens(self) -> int:
        """`max_length`, which a run sets from its model if it is null."""
        assert self.max_length is not None, "pretrain sets it"
        return self.max_length

    def row(self) -> Objective:
        """The objective's row, changed by these settings."""
        assert self.objective != NONE, "nothing is trained"
        row = find_objective(self.objective)
        return replace(
            row,
            encoder=self._corruption(row.encoder),
            decoder_corruption=row.decoder_corruption and self._corruption(row.decoder_corruption),
            decoder_layers=self.decoder_layers or row.decoder_layers,
            decoder_init=self.decoder_init or row.decoder_init,
            bottleneck=self.bottleneck or row.bottleneck,
        )

    def _corruption(self, corruption: Corruption) -> Corruption:
        if self.mask_replacement is None or corruption.replacement == "generator" or corruption.draw in ("none", "all"):
            return corruption
        return replace(corruption, replacement=self.mask_replacement)
