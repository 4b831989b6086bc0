"""The table of pre-training objectives: every one is a row of data over shared parts. Torch is not imported here.

A row says how the encoder's and the decoder's inputs are corrupted, which decoder there is and how it begins, what the
decoder sees of the encoder (the bottleneck), and where the loss falls. A new combination is a new row.
"""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import nearest
from stillhouse.errors import InputError


@dataclass(frozen=True)
class Corruption:
    """How an input is corrupted.

    `draw`: which positions. "random": a share of the tokens, or of words whole (the setting `mask_unit`); "nested": the
    encoder's positions and a second random draw, so that what is corrupted in the encoder is so in the decoder too (001
    §3.1); "importance": the tokens of highest AMI after Gaussian noise (003 Algorithm 1).
    `replacement`: what stands there instead. "mask": [MASK]; "80_10_10": [MASK], a random token or the token itself, in
    80, 10 and 10 % of the cases (003 §3.1); "generator": tokens that a masked language model samples (001 eq. 1).
    """

    draw: str
    replacement: str


@dataclass(frozen=True, kw_only=True)
class Objective:
    """One row. `positions`: the loss falls on "masked" (corrupted) positions or on "all" tokens of the passage.

    `decoder`: "none" or "bidirectional"; `decoder_init`: "last_layers" copies the encoder's last layers, "random" draws
    new ones. `bottleneck`: the pooled vector as it is ("raw") or after a "linear" projection (003 eq. 4).
    `bag_of_words` adds the prediction of the passage's set of tokens from the pooled vector (002 eq. 12).
    """

    name: str
    summary: str
    source: str
    encoder: Corruption
    prediction: str = "tokens"
    positions: str = "masked"
    decoder: str = "none"
    decoder_corruption: Corruption | None = None
    decoder_init: str = "last_layers"
    decoder_layers: int = 2
    bottleneck: str = "raw"
    bag_of_words: bool = False

    def __post_init__(self) -> None:
        assert (self.decoder == "none") == (self.decoder_corruption is None), self.name

    @property
    def corruptions(self) -> tuple[Corruption, ...]:
        return (self.encoder, self.decoder_corruption) if self.decoder_corruption else (self.encoder,)

    @property
    def needs_generator(self) -> bool:
        return any(corruption.replacement == "generator" for corruption in self.corruptions)

    @property
    def needs_importance(self) -> bool:
        return any(corruption.draw == "importance" for corruption in self.corruptions)


TABLE: tuple[Objective, ...] = (
    Objective(
        name="mlm",
        summary="masked tokens from their context; trains a language-model head or a generator",
        source="Devlin et al. 2019; 003 eq. 3",
        encoder=Corruption("random", "80_10_10"),
    ),
    Objective(
        name="simlm",
        summary="replaced tokens, by the encoder and through the bottleneck by a 2-layer decoder, at all positions",
        source="001 §3.1, eq. 1-2",
        encoder=Corruption("random", "generator"),
        positions="all",
        decoder="bidirectional",
        decoder_corruption=Corruption("nested", "generator"),
    ),
    Objective(
        name="bow",
        summary="masked tokens, and the passage's set of tokens from its vector; no decoder",
        source="002 §3.3, eq. 12-13",
        encoder=Corruption("random", "mask"),
        bag_of_words=True,
    ),
    Objective(
        name="cdmae",
        summary="masked tokens, by the encoder and through a projection by a decoder whose important tokens are masked",
        source="003 §3, eq. 1-6 and Algorithm 1",
        encoder=Corruption("random", "80_10_10"),
        decoder="bidirectional",
        decoder_corruption=Corruption("importance", "80_10_10"),
        decoder_init="random",
        bottleneck="linear",
    ),
)

NAMES = tuple(objective.name for objective in TABLE)


def find_objective(name: str) -> Objective:
    """The row of a name. Raises `InputError` for an unknown one."""
    for objective in TABLE:
        if objective.name == name:
            return objective
    raise InputError(f"there is no objective {name!r}; {nearest(name, NAMES)}")


def describe() -> str:
    """One line an objective, for `--help`."""
    return "".join(f"\n  {objective.name}: {objective.summary} ({objective.source})" for objective in TABLE)
