"""How far a refresh goes: one of four levels, as high as the change of the corpus requires.

| level | when | what is done | version |
|---|---|---|---|
| `nothing` | same passages, queries and qrels | nothing | – |
| `index` | at most `fine_tune_above` of the texts changed | encode new texts, rebuild the index | patch |
| `fine_tune` | more texts, or queries or qrels, changed | mine negatives, fine-tune the released retriever | minor |
| `pretrain` | more than `pretrain_above` changed | pre-train the released encoder, mine negatives, fine-tune | major |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from stillhouse.core.config import setting
from stillhouse.core.errors import InputError

if TYPE_CHECKING:
    from stillhouse.corpus.difference import Difference


class Level(StrEnum):
    NOTHING = "nothing"
    INDEX = "index"
    FINE_TUNE = "fine_tune"
    PRETRAIN = "pretrain"


BUMPS = {Level.INDEX: "patch", Level.FINE_TUNE: "minor", Level.PRETRAIN: "major"}
"""Which part of the version number each level raises."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The shares of changed texts, relative to the larger corpus, above which a higher level is needed."""

    fine_tune_above: float = setting(
        0.02, "train the retriever if a larger share of the texts was added or removed", minimum=0
    )
    pretrain_above: float = setting(0.2, "pre-train the encoder first if a larger share changed", minimum=0)

    def __post_init__(self) -> None:
        if self.pretrain_above < self.fine_tune_above:
            raise InputError(
                f"pretrain_above ({self.pretrain_above}) is below fine_tune_above ({self.fine_tune_above}); raise it"
            )


@dataclass(frozen=True)
class Plan:
    """The level, and why it was chosen."""

    level: Level
    reason: str


def plan(found: Difference, thresholds: Thresholds, *, pretrains: bool = True) -> Plan:
    """The level that a change of the corpus requires; a recipe that never `pretrains` stops at the level below."""
    if found.none:
        return Plan(Level.NOTHING, "the corpus is the same as in the release: nothing to do")
    if found.share > thresholds.pretrain_above and pretrains:
        return Plan(Level.PRETRAIN, f"{found}; above pretrain_above = {thresholds.pretrain_above:.2%}")
    if found.share > thresholds.fine_tune_above:
        return Plan(Level.FINE_TUNE, f"{found}; above fine_tune_above = {thresholds.fine_tune_above:.2%}")
    if found.labels_changed:
        return Plan(Level.FINE_TUNE, f"{found}; the retriever is trained")
    return Plan(Level.INDEX, f"{found}; at most fine_tune_above = {thresholds.fine_tune_above:.2%}")
