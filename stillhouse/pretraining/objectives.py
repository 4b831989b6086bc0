"""The table of pre-training objectives: each is a row of data that combines shared parts. Does not import torch.

A row defines how the encoder's and decoder's inputs are corrupted, the decoder and its initialisation, what the decoder
sees of the encoder (the bottleneck), what is predicted and at which positions. A new combination is a new row. Where a
paper and its authors' code differ, a row follows the paper; `settings.py` has an option for the code's variant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stillhouse.core.config import refuse_unknown
from stillhouse.pretraining.pairs.settings import PAIR_OBJECTIVES, TASKS


@dataclass(frozen=True)
class Corruption:
    """How an input is corrupted.

    `draw` selects the positions. "random": a share of the tokens or of whole words (the setting `mask_unit`); "nested":
    the encoder's positions and a second random draw, so that the decoder's input is corrupted wherever the encoder's is
    (SimLM §3.1); "importance": the tokens of highest AMI after Gaussian noise (CDMAE Algorithm 1); "all"; "none".
    `replacement` is what they become. "mask": [MASK]; "80_10_10": [MASK], a random token or the token itself, in 80, 10
    and 10 % of the cases (CDMAE §3.1); "generator": tokens that a masked language model samples (SimLM eq. 1).
    """

    draw: str
    replacement: str = "mask"


CLEAN = Corruption("none")


@dataclass(frozen=True, kw_only=True)
class Objective:
    """One row. `positions`: the loss covers "masked" (corrupted) positions or "all" tokens of the passage.

    `prediction`: the original "tokens", or which tokens were "replaced" (SimLM §5.1, replaced token detection).
    `generator`: "frozen", trained with the encoder ("joint"), or the same from random parameters ("joint_random").

    `decoder` is "none" or one of (`decoders.make_decoder`):
      "bidirectional": Transformer layers over the corrupted passage, with the bottleneck in place of its first token;
      "causal": the same, but a position sees no later ones and predicts the next token (BoW eq. 6-7);
      "enhanced": for each position, a query of bottleneck and position reads the clean tokens visible to it:
        (1 - `decoder_mlm_probability`) of them, never its own (BoW eq. 8-10);
      "skip": reads the encoder's last [CLS] state and, bypassing the bottleneck, the token states of its middle layer
        (Condenser; SimLM §5.1). It sees more than the bottleneck by design.
    `decoder_init`: "last_layers" copies the encoder's last layers, "random" draws new ones. `bottleneck`: the pooled
    vector unchanged ("raw") or after a "linear" projection (CDMAE eq. 4). `bag_of_words` adds the prediction of the
    passage's set of tokens from the pooled vector (BoW eq. 12). `pairs` names the tasks of a row that learns from text
    pairs instead (`pairs/tasks.py`); these leave the language-model head unchanged.
    """

    name: str
    summary: str
    source: str
    encoder: Corruption
    prediction: str = "tokens"
    positions: str = "masked"
    generator: str = "frozen"
    decoder: str = "none"
    decoder_corruption: Corruption | None = None
    decoder_init: str = "last_layers"
    decoder_layers: int = 2
    bottleneck: str = "raw"
    bag_of_words: bool = False
    pairs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert (self.decoder in ("none", "skip")) == (self.decoder_corruption is None), self.name
        assert self.prediction == "tokens" or self.needs_generator, self.name

    @property
    def corruptions(self) -> tuple[Corruption, ...]:
        return (self.encoder, self.decoder_corruption) if self.decoder_corruption else (self.encoder,)

    @property
    def needs_generator(self) -> bool:
        return any(corruption.replacement == "generator" for corruption in self.corruptions)

    @property
    def needs_importance(self) -> bool:
        return any(corruption.draw == "importance" for corruption in self.corruptions)

    @property
    def masked_lm(self) -> bool:
        """Whether the encoder learns to fill in [MASK], so that the accuracy of its head can be checked."""
        return self.encoder.draw != "none" and self.encoder.replacement != "generator"

    def predicts_all(self, of_decoder: bool) -> bool:
        """Whether a loss covers all tokens or only the corrupted ones. A decoder with clean input predicts all."""
        clean = self.decoder_corruption is not None and self.decoder_corruption.draw == "none"
        return self.positions == "all" or (of_decoder and clean)


SIMLM = Objective(
    name="simlm",
    summary="replaced tokens, by the encoder and through the bottleneck by a 2-layer decoder, at all positions",
    source="SimLM §3.1, eq. 1-2",
    encoder=Corruption("random", "generator"),
    positions="all",
    decoder="bidirectional",
    decoder_corruption=Corruption("nested", "generator"),
)
AUTO_ENCODING = Objective(
    name="auto_encoding",
    summary="masked tokens, by the encoder and through the bottleneck by a 1-layer decoder",
    source="BoW §3.1, eq. 4-5",
    encoder=Corruption("random", "mask"),
    decoder="bidirectional",
    decoder_corruption=Corruption("random", "mask"),
    decoder_init="random",
    decoder_layers=1,
)
BOW = Objective(
    name="bow",
    summary="masked tokens, and the passage's set of tokens from its vector; no decoder",
    source="BoW §3.3, eq. 12-13",
    encoder=Corruption("random", "mask"),
    bag_of_words=True,
)
CDMAE = Objective(
    name="cdmae",
    summary="masked tokens, by the encoder and, through a projection, by a decoder with important tokens masked",
    source="CDMAE §3, eq. 1-6 and Algorithm 1",
    encoder=Corruption("random", "80_10_10"),
    decoder="bidirectional",
    decoder_corruption=Corruption("importance", "80_10_10"),
    decoder_init="random",
    bottleneck="linear",
)
TABLE: tuple[Objective, ...] = (
    Objective(
        name="mlm",
        summary="masked tokens from their context; trains a language-model head or a generator",
        source="Devlin et al. 2019; SimLM Table 7, CDMAE eq. 3",
        encoder=Corruption("random", "80_10_10"),
    ),
    SIMLM,
    replace(
        SIMLM,
        name="simlm_joint",
        summary="simlm with a generator that keeps learning",
        source="SimLM Table 12",
        generator="joint",
    ),
    replace(
        SIMLM,
        name="simlm_joint_random",
        summary="simlm with a generator trained from scratch",
        source="SimLM Table 12",
        generator="joint_random",
    ),
    Objective(
        name="enc_dec_mlm",
        summary="simlm's architecture on masked tokens, without a generator",
        source="SimLM §5.1",
        encoder=Corruption("random", "mask"),
        decoder="bidirectional",
        decoder_corruption=Corruption("nested", "mask"),
    ),
    replace(
        SIMLM,
        name="enc_dec_rtd",
        summary="simlm's architecture with replaced token detection",
        source="SimLM §5.1",
        prediction="replaced",
    ),
    Objective(
        name="condenser",
        summary="masked tokens by a head that reads the last [CLS] and, by skip connections, middle token states",
        source="Gao and Callan 2021; SimLM §5.1",
        encoder=Corruption("random", "80_10_10"),
        decoder="skip",
        decoder_init="random",
    ),
    Objective(
        name="autoencoder",
        summary="the whole passage from its vector alone",
        source="SimLM §5.1",
        encoder=CLEAN,
        decoder="bidirectional",
        decoder_corruption=Corruption("all", "mask"),
    ),
    AUTO_ENCODING,
    replace(
        AUTO_ENCODING,
        name="auto_regression",
        summary="masked tokens, and each next token through the bottleneck by a 1-layer causal decoder",
        source="BoW §3.1, eq. 6-7",
        decoder="causal",
        decoder_corruption=CLEAN,
    ),
    replace(
        AUTO_ENCODING,
        name="enhanced_decoding",
        summary="masked tokens, and every token from the bottleneck and the tokens visible to its position (RetroMAE)",
        source="BoW §3.1, eq. 8-10; CDMAE Table 6",
        decoder="enhanced",
        decoder_corruption=CLEAN,
    ),
    BOW,
    CDMAE,
    replace(
        SIMLM,
        name="simlm_importance",
        summary="simlm with important tokens replaced in the decoder",
        source="this project: SimLM with the masking of CDMAE",
        decoder_corruption=Corruption("importance", "generator"),
    ),
    replace(
        BOW,
        name="bow_importance",
        summary="bow with important tokens masked in the encoder",
        source="this project: BoW with the masking of CDMAE",
        encoder=Corruption("importance", "mask"),
    ),
    replace(
        CDMAE,
        name="cdmae_bow",
        summary="cdmae plus the bag of words",
        source="this project: CDMAE with the task of BoW",
        bag_of_words=True,
    ),
)
NAMES = tuple(objective.name for objective in TABLE)
"""The objectives that predict a passage's tokens."""

PAIR_TABLE: tuple[Objective, ...] = tuple(
    Objective(
        name=name,
        summary=TASKS.get(name, "an equal mix of these tasks"),
        source=f"Chang et al. 2020 §{'3' if name in TASKS else '4.1'}",
        encoder=CLEAN,
        pairs=tuple(name.split("+")),
    )
    for name in PAIR_OBJECTIVES
)


def find_objective(name: str) -> Objective:
    """The objective called `name`. Raises `InputError` for an unknown one."""
    known = {objective.name: objective for objective in (*TABLE, *PAIR_TABLE)}
    refuse_unknown(name, known, "there is no objective")
    return known[name]


def describe() -> str:
    """One line per objective, for `--help`; the mixtures of pair tasks share one."""
    rows = (*TABLE, *(row for row in PAIR_TABLE if len(row.pairs) == 1))
    lines = "".join(f"\n  {objective.name}: {objective.summary} ({objective.source})" for objective in rows)
    [mixture, *_] = mixed = sorted((row for row in PAIR_TABLE if len(row.pairs) > 1), key=lambda row: -len(row.pairs))
    return f"{lines}\n  {', '.join(row.name for row in mixed)}: {mixture.summary} ({mixture.source})"
