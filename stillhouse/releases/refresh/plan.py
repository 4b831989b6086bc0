"""How far a refresh goes: one of four levels, as high as the change of the corpus requires.

| level | when | what is done | version |
|---|---|---|---|
| `nothing` | same passages, queries and qrels | nothing | – |
| `index` | at most `fine_tune_above` of the texts changed | encode new texts, rebuild the index | patch |
| `fine_tune` | more texts, or queries or qrels, changed | mine negatives, fine-tune the released retriever | minor |
| `pretrain` | more than `pretrain_above` changed | pre-train the released encoder, mine negatives, fine-tune | major |

The parameters of the pipeline `refresh` are checked when they are read. Thresholds and rules take their defaults,
ranges and help texts from the classes that use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import yaml

from stillhouse.core.config import field_types, from_forms, same_setting, setting
from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import refuse_secret
from stillhouse.evaluation.release_rule import Rule
from stillhouse.pipeline.graph import GRAPH, STAGES, known_steps
from stillhouse.pipeline.recipes import Recipe

if TYPE_CHECKING:
    from stillhouse.corpus.difference import Difference

SOURCE = ("source", "repo", "revision")
"""Settings of `ingest` that say where the corpus comes from."""
RULES = ("measure", "alpha", "most_loss", "least_queries", "bootstrap_samples", "randomisation_samples")
"""Settings of `compare-release` that a user may set. The seed is fixed, so that nobody can try seeds until one
passes."""


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


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameters of the pipeline, as its run form shows them."""

    releases: str = setting("", "URL of the git repository with the releases", location=True, required=True)
    repo: str = setting(
        "", "the DVC repository to read the corpus from; empty = source is not in a repository", location=True
    )
    source: str = setting("", "the corpus: its path in repo, or any source that `ingest` accepts", location=True)
    revision: str = setting("", "the branch, tag or commit of repo; empty = its default branch")
    branch: str = setting("", "the branch to commit releases to; empty = the repository's default")
    fine_tune_above: float = same_setting(Thresholds, "fine_tune_above")
    pretrain_above: float = same_setting(Thresholds, "pretrain_above")
    measure: str = same_setting(Rule, "measure")
    alpha: float = same_setting(Rule, "alpha")
    most_loss: float = same_setting(Rule, "most_loss")
    least_queries: int = same_setting(Rule, "least_queries")
    bootstrap_samples: int = same_setting(Rule, "bootstrap_samples")
    randomisation_samples: int = same_setting(Rule, "randomisation_samples")
    again: bool = setting(False, "retry a corpus whose challenger was refused")

    def __post_init__(self) -> None:
        from stillhouse.evaluation.measures import parse_measures

        if not self.releases:
            raise InputError("releases is empty; give the URL of the git repository with the releases")
        for name in ("releases", "repo"):
            refuse_secret(getattr(self, name), name)
        self.thresholds  # noqa: B018  (fails here and not in the middle of a run)
        if len(parse_measures(self.measure)) != 1:
            raise InputError(f"measure {self.measure!r} must name exactly one measure, such as RR@10")

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(**{name: getattr(self, name) for name in field_types(Thresholds)})

    @property
    def rules(self) -> Rule:
        return Rule(**{name: getattr(self, name) for name in RULES})

    @property
    def corpus(self) -> dict[str, str | None]:
        """Settings of `ingest` for the release's recipe."""
        # An empty field of the form means no repository, and the default revision.
        return {name: getattr(self, name) or None for name in SOURCE}


def read_parameters(values: Mapping[str, Any]) -> Parameters:
    """The refresh parameters among the arguments of a component or of a run."""
    return from_forms(Parameters, values, "pipeline refresh")


def write_recipe(recipe: Recipe) -> str:
    """A recipe as a release holds it. Every step has a section, since DVC looks up the parameters of each stage."""
    kept = {name: recipe[name] for name in (GRAPH, STAGES) if name in recipe}
    names = dict.fromkeys(step.section for step in known_steps(recipe).values())
    return yaml.safe_dump(kept | {name: dict(recipe.get(name, {})) for name in names}, sort_keys=False)
