"""How far a refresh goes: one of five levels, as high as the change of the corpus requires.

| level | when | what is done | version |
|---|---|---|---|
| `nothing` | same passages, queries and qrels | nothing | – |
| `index` | at most `fine_tune_above` of the texts changed | encode new texts, rebuild the index | patch |
| `query_only` | the same, but queries or qrels changed | train only the query tower, keep the vectors | minor |
| `fine_tune` | more texts, or queries or qrels, changed | mine negatives, fine-tune the released retriever | minor |
| `pretrain` | more than `pretrain_above` changed | pre-train the released encoder, mine negatives, fine-tune | major |

The level `query_only` is a trial: if it does not gain `query_only_gain` on the dev queries, `fine_tune` follows.
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
    QUERY_ONLY = "query_only"
    FINE_TUNE = "fine_tune"
    PRETRAIN = "pretrain"


BUMPS = {Level.INDEX: "patch", Level.QUERY_ONLY: "minor", Level.FINE_TUNE: "minor", Level.PRETRAIN: "major"}
"""Which part of the version number each level raises."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The shares of changed texts, relative to the larger corpus, above which a higher level is needed, and the gain
    that the level `query_only` needs."""

    fine_tune_above: float = setting(
        0.02, "train the retriever if a larger share of the texts was added or removed", minimum=0
    )
    pretrain_above: float = setting(0.2, "pre-train the encoder first if a larger share changed", minimum=0)

    query_only_gain: float = setting(
        0.02,
        "if queries or qrels changed but few texts did, train only the query tower, and stop there if it gains this "
        "much nDCG@10 on dev, with a 95 % interval above 0; 1 = train the retriever instead",
        minimum=0,
        maximum=1,
    )

    @property
    def tries_query_only(self) -> bool:
        return self.query_only_gain < 1

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
    if found.labels_changed and thresholds.tries_query_only:
        return Plan(Level.QUERY_ONLY, f"{found}; the query tower is trained first")
    if found.labels_changed:
        return Plan(Level.FINE_TUNE, f"{found}; the retriever is trained")
    return Plan(Level.INDEX, f"{found}; at most fine_tune_above = {thresholds.fine_tune_above:.2%}")


def after_queries(planned: Plan, helps: bool, gain: float, measure: str, thresholds: Thresholds) -> Plan:
    """The plan after the training of the query tower: its own level if dev shows that to be enough, else `fine_tune`.

    `gain` is the mean gain in `measure` on dev, and `helps` says whether its interval lies above 0.
    """
    found = f"the query tower alone gains {gain:+.3f} {measure} on dev"
    if helps and gain >= thresholds.query_only_gain:
        return Plan(Level.QUERY_ONLY, f"{planned.reason}; {found}")
    less = "which may be due to chance" if gain >= thresholds.query_only_gain else "less than"
    than = "" if gain >= thresholds.query_only_gain else f" query_only_gain = {thresholds.query_only_gain:g}"
    return Plan(Level.FINE_TUNE, f"{planned.reason}; {found}, {less}{than}")
