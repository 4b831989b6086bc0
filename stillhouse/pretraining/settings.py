"""The settings of pre-training. No torch here: the step module reads it to declare its flags."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stillhouse.config import setting
from stillhouse.errors import InputError
from stillhouse.pretraining.objectives import NAMES, Corruption, Objective, describe, find_objective
from stillhouse.pretraining.pairs.settings import PAIR_OBJECTIVES, PairConfig, describe_pairs
from stillhouse.training.settings import TrainingConfig

NONE = "none"
"""No pre-training, for a model that had it elsewhere."""
ROW = "row"
"""What a setting says to leave an objective's row as it is."""


@dataclass(frozen=True, kw_only=True)
class CountingConfig:
    """How n-grams are counted: settings of `count` and `importance`."""

    window: int = setting(4, "longest n-gram that is counted: L of 003 eq. 8", minimum=2, maximum=8)
    unit: str = setting(
        "pieces",
        "what an n-gram consists of: word pieces as the model reads them, or whole words (a piece scores as its word)",
        choices=("pieces", "words"),
    )
    memory_mib: int = setting(1024, "MiB that counting may hold at once; what is more goes to disk", minimum=1)


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig(PairConfig, TrainingConfig):
    """Settings of `pretrain`. Rates, length and learning rate are those of 001 Table 11, of pair tasks those of 004."""

    objective: str = setting(
        "simlm",
        f"what is learned:{describe()}{describe_pairs()}\n  none: nothing; the model passes as it is\n ",
        choices=(*NAMES, *PAIR_OBJECTIVES, NONE),
    )
    trainable: str = setting(
        "all",
        "all = the whole model; head = the language-model head alone; missing_head = the same for an encoder that came "
        "without one, and no training at all for another",
        choices=("all", "head", "missing_head"),
    )
    encoder_mask: float = setting(0.3, "share of the encoder's tokens that is corrupted", minimum=0.01, maximum=0.9)
    decoder_mask: float = setting(
        0.5,
        "share of the decoder's tokens that is corrupted, or hidden from a position by enhanced_decoding",
        minimum=0.01,
        maximum=1,
    )
    mask_unit: str = setting(
        "token",
        "what random masking draws: token = single tokens, as in the papers; word = whole words, as in the code of 001",
        choices=("token", "word"),
    )
    mask_replacement: str = setting(
        ROW,
        "what masked tokens become: row = as the objective says; mask = [MASK]; 80_10_10 = [MASK], a random token or "
        "itself, as in the code of 002 for its objectives",
        choices=(ROW, "mask", "80_10_10"),
    )
    decoder_layers: int = setting(0, "layers of the decoder; 0 = as the objective says", minimum=0)
    decoder_init: str = setting(
        ROW,
        "how the decoder begins: row = as the objective says; last_layers = copies of the encoder's; random",
        choices=(ROW, "last_layers", "random"),
    )
    bottleneck: str = setting(
        ROW,
        "what the decoder gets of the vector: row = as the objective says; raw = itself; linear = a projection of it",
        choices=(ROW, "raw", "linear"),
    )
    visibility_masks: int = setting(
        0,
        "enhanced_decoding: 0 = every position's visible tokens are drawn anew, as in the paper; n = each position "
        "takes one of n masks of its passage, as in the code of RetroMAE (256)",
        minimum=0,
        maximum=256,
    )
    importance_noise: float = setting(1.0, "standard deviation of the noise on AMI (003 Algorithm 1)", minimum=0)
    loss_mean: str = setting(
        "passage",
        "passage = the mean over a passage's positions, then over passages, as in 001 eq. 2; token = over all "
        "predicted tokens of a batch, in however many parts; the code of 001 has that of each GPU's part",
        choices=("passage", "token"),
    )
    generator_weight: float = setting(0.2, "weight of the loss of a generator that learns (the code of 001)", minimum=0)
    bag_logits: str = setting(
        "embeddings",
        "bag of words: embeddings = the vector times the word embeddings, as in 002 eq. 11; head = through the whole "
        "language-model head, as in the code of 002",
        choices=("embeddings", "head"),
    )
    bag_weight_end: float = setting(
        1.0,
        "bag of words: its weight falls along a cosine from 1 to this by the last step; 1 = never, as in 002; the code "
        "of 002 has 0.1",
        minimum=0,
        maximum=1,
    )
    max_length: int = setting(144, "tokens of a passage, [CLS] and [SEP] included", minimum=3)
    heldout_fraction: float = setting(
        0.05, "share of the passages that is held out to measure the loss", minimum=0.0001, maximum=0.5
    )
    heldout_limit: int = setting(4096, "most passages that are held out", minimum=1)
    learning_rate: float = setting(3e-4, "peak learning rate of AdamW", minimum=0)
    accumulate: int = setting(
        1, "a step's batch is computed in so many parts, one after the other, in the memory of one of them", minimum=1
    )
    bucket_steps: int = setting(
        64,
        "passages of so many steps are sorted by length and dealt into batches, which need little padding; 0 = not",
        minimum=0,
    )
    signals: bool = setting(True, "measure signs of retrieval quality on held-out passages with every held-out loss")
    stop_on: str = setting(
        "heldout_loss",
        "what the best parameters are chosen by: heldout_loss = the objective's own; ict_RR@10 = retrieval by ICT "
        "pairs of held-out passages; heldout_mlm_loss; coverage@20 = input tokens among the vector's top 20 (002 "
        "Algorithm 1)",
        choices=("heldout_loss", "ict_RR@10", "heldout_mlm_loss", "coverage@20"),
    )
    patience: int = setting(0, "stop after so many measurements in a row without a better one; 0 = never", minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trainable != "all" and self.objective != "mlm":
            raise InputError(f"trainable: {self.trainable} is for objective mlm; take that, or trainable: all")
        if self.stop_on != "heldout_loss" and not self.signals:
            raise InputError(f"stop_on {self.stop_on!r} is a signal; it needs signals: true")
        if self.objective == NONE:
            return
        if self.objective in PAIR_OBJECTIVES:
            if self.accumulate > 1:
                raise InputError(
                    "pair tasks take their negatives from the whole batch, which accumulate would cut up; set "
                    "texts_at_once and gradient_cache instead"
                )
            return
        nested = any(corruption.draw == "nested" for corruption in find_objective(self.objective).corruptions)
        if nested and self.decoder_mask < self.encoder_mask:
            raise InputError(
                f"decoder_mask {self.decoder_mask} must be at least encoder_mask {self.encoder_mask}: "
                "what is corrupted in the encoder's input is corrupted in the decoder's too"
            )

    def row(self) -> Objective | None:
        """The objective's row with what these settings change in it; None for pair tasks, which have no row."""
        assert self.objective != NONE, "nothing is trained"
        if self.objective in PAIR_OBJECTIVES:
            return None
        row = find_objective(self.objective)
        return replace(
            row,
            encoder=self._corruption(row.encoder),
            decoder_corruption=row.decoder_corruption and self._corruption(row.decoder_corruption),
            decoder_layers=self.decoder_layers or row.decoder_layers,
            decoder_init=row.decoder_init if self.decoder_init == ROW else self.decoder_init,
            bottleneck=row.bottleneck if self.bottleneck == ROW else self.bottleneck,
        )

    def _corruption(self, corruption: Corruption) -> Corruption:
        kept = (
            self.mask_replacement == ROW or corruption.replacement == "generator" or corruption.draw in ("none", "all")
        )
        return corruption if kept else replace(corruption, replacement=self.mask_replacement)
