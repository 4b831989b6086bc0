"""The settings of pre-training. No torch here: the step module reads it to declare its flags."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.errors import InputError
from stillhouse.pretraining.objectives import NAMES, describe
from stillhouse.training.settings import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig(TrainingConfig):
    """Settings of `pretrain`. Rates, length and learning rate are those of 001 Table 11."""

    objective: str = setting("simlm", f"what is predicted from what:{describe()}\n ", choices=NAMES)
    trainable: str = setting(
        "all",
        "all = the whole model; head = the language-model head alone, for an encoder that came without one",
        choices=("all", "head"),
    )
    encoder_mask: float = setting(0.3, "share of the encoder's tokens that is corrupted", minimum=0.01, maximum=0.9)
    decoder_mask: float = setting(0.5, "share of the decoder's tokens that is corrupted", minimum=0.01, maximum=0.9)
    mask_unit: str = setting(
        "token",
        "what random masking draws: token = single tokens, as in the papers; word = whole words, as in the code of 001",
        choices=("token", "word"),
    )
    importance_noise: float = setting(1.0, "standard deviation of the noise on AMI (003 Algorithm 1)", minimum=0)
    max_length: int = setting(144, "tokens of a passage, [CLS] and [SEP] included", minimum=3)
    heldout_fraction: float = setting(
        0.05, "share of the passages that is held out to measure the loss", minimum=0.0001, maximum=0.5
    )
    heldout_limit: int = setting(4096, "most passages that are held out", minimum=1)
    learning_rate: float = setting(3e-4, "peak learning rate of AdamW", minimum=0)

    def __post_init__(self) -> None:
        if self.objective == "simlm" and self.decoder_mask < self.encoder_mask:
            raise InputError(
                f"decoder_mask {self.decoder_mask} must be at least encoder_mask {self.encoder_mask}: "
                "what is replaced in the encoder's input is replaced in the decoder's too"
            )
