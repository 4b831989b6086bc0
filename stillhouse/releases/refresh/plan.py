"""How far a refresh goes: a ladder of five rungs, climbed as high as the change of the corpus asks for.

| rung | when | what is done | version |
|---|---|---|---|
| `nothing` | same passages, queries and qrels | it says so | – |
| `index` | at most `fine_tune_above` of the texts came or went | encode what is new, build the index | patch |
| `query_only` | no more texts, other queries or qrels | train the query tower alone, the index stays | minor |
| `fine_tune` | more, or other queries or qrels | new negatives, fine-tune the released retriever | minor |
| `pretrain` | more than `pretrain_above` | pre-train the released encoder, new negatives, fine-tune | major |

The rung `query_only` is a trial: where the dev queries do not show that it gains `query_only_gain`, `fine_tune`
follows.
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
    QUERY_ONLY = "query_only"
    FINE_TUNE = "fine_tune"
    PRETRAIN = "pretrain"


BUMPS = {Rung.INDEX: "patch", Rung.QUERY_ONLY: "minor", Rung.FINE_TUNE: "minor", Rung.PRETRAIN: "major"}
"""Which part of the version number each rung raises."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The share of texts that came or went, of the larger corpus, above which a rung is climbed, and what the rung
    `query_only` has to gain."""

    fine_tune_above: float = setting(
        0.02, "the share of texts that came or went above which the retriever is trained", minimum=0
    )
    pretrain_above: float = setting(0.2, "the share above which the encoder is pre-trained again, first", minimum=0)

    query_only_gain: float = setting(
        0.02,
        "where queries or qrels changed and texts little, the query tower is trained alone, and that is enough if it "
        "gains so much nDCG@10 on dev, with a 95 % interval above 0; else the retriever is trained; 1 = do not try it",
        minimum=0,
        maximum=1,
    )

    @property
    def tries_query_only(self) -> bool:
        return self.query_only_gain < 1

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
    if found.labels_changed and thresholds.tries_query_only:
        return Plan(Rung.QUERY_ONLY, f"{found}; other queries or qrels ask for training, of the query tower first")
    if found.labels_changed:
        return Plan(Rung.FINE_TUNE, f"{found}; other queries or qrels ask for training")
    return Plan(Rung.INDEX, f"{found}; at most fine_tune_above = {thresholds.fine_tune_above:.2%}")


def after_queries(planned: Plan, helps: bool, gain: float, measure: str, thresholds: Thresholds) -> Plan:
    """What follows the training of the query tower: its rung where dev shows that it is enough, else `fine_tune`.

    `gain` is the mean gain in `measure` on dev, and `helps` says whether its interval lies above 0.
    """
    found = f"the query tower alone gains {gain:+.3f} {measure} on dev"
    if helps and gain >= thresholds.query_only_gain:
        return Plan(Rung.QUERY_ONLY, f"{planned.reason}; {found}")
    less = "which may be chance" if gain >= thresholds.query_only_gain else "less than"
    than = "" if gain >= thresholds.query_only_gain else f" query_only_gain = {thresholds.query_only_gain:g}"
    return Plan(Rung.FINE_TUNE, f"{planned.reason}; {found}, {less}{than}")
