"""How far a refresh goes: a ladder of four rungs, climbed as high as the change of the corpus asks for.

| rung | when | what is done | version |
|---|---|---|---|
| `nothing` | same passages, queries and qrels | it says so | – |
| `index` | at most `fine_tune_above` of the texts came or went | encode what is new, build the index | patch |
| `fine_tune` | more, or other queries or qrels | new negatives, fine-tune the released retriever | minor |
| `pretrain` | more than `pretrain_above` | pre-train the released encoder, new negatives, fine-tune | major |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from stillhouse.config import setting
from stillhouse.errors import InputError

if TYPE_CHECKING:
    from stillhouse.corpus.difference import Difference


class Rung(StrEnum):
    NOTHING = "nothing"
    INDEX = "index"
    FINE_TUNE = "fine_tune"
    PRETRAIN = "pretrain"


BUMPS = {Rung.INDEX: "patch", Rung.FINE_TUNE: "minor", Rung.PRETRAIN: "major"}
"""Which part of the version number each rung raises."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The share of texts that came or went, of the larger corpus, above which a rung is climbed."""

    fine_tune_above: float = setting(
        0.02, "the share of texts that came or went above which the retriever is trained", minimum=0
    )
    pretrain_above: float = setting(0.2, "the share above which the encoder is pre-trained again, first", minimum=0)

    def __post_init__(self) -> None:
        if self.pretrain_above < self.fine_tune_above:
            raise InputError(
                f"pretrain_above ({self.pretrain_above}) is below fine_tune_above ({self.fine_tune_above}); the ladder "
                "goes up: raise it"
            )


@dataclass(frozen=True)
class Plan:
    """The rung, and why it is that one."""

    rung: Rung
    reason: str


def plan(found: Difference, thresholds: Thresholds, *, pretrains: bool = True) -> Plan:
    """The rung that a change of the corpus asks for; a recipe that never `pretrains` ends on the one below."""
    if found.none:
        return Plan(Rung.NOTHING, "the corpus is that of the release: nothing to do")
    if found.share > thresholds.pretrain_above and pretrains:
        return Plan(Rung.PRETRAIN, f"{found}; above pretrain_above = {thresholds.pretrain_above:.2%}")
    if found.share > thresholds.fine_tune_above:
        return Plan(Rung.FINE_TUNE, f"{found}; above fine_tune_above = {thresholds.fine_tune_above:.2%}")
    if found.labels_changed:
        return Plan(Rung.FINE_TUNE, f"{found}; other queries or qrels ask for training")
    return Plan(Rung.INDEX, f"{found}; at most fine_tune_above = {thresholds.fine_tune_above:.2%}")
