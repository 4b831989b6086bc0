"""The parameters of the pipeline `refresh`, checked when they are read.

Thresholds and rules take their defaults, ranges and help texts from the classes that use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from stillhouse.core.config import field_types, from_forms, same_setting, setting
from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import refuse_secret
from stillhouse.evaluation.release_rule import Rule
from stillhouse.pipeline.graph import GRAPH, STAGES, known_uses
from stillhouse.pipeline.recipes import Recipe, copied
from stillhouse.releases.refresh.plan import Thresholds

SOURCE = ("source", "repo", "revision")
"""Settings of `ingest` that say where the corpus comes from."""
RULES = ("measure", "alpha", "most_loss", "least_queries", "bootstrap_samples", "randomisation_samples")
"""Settings of `compare-release` that a user may set. The seed is fixed, so that nobody can try seeds until one
passes."""


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


def carried_recipe(recipe: Recipe) -> str:
    """A recipe as the pipeline carries it; sections without settings are left out."""
    return yaml.safe_dump({name: content for name, content in copied(recipe).items() if content}, sort_keys=False)


def write_recipe(recipe: Recipe) -> str:
    """A recipe as a release holds it. Every step has a section, since DVC looks up the parameters of each stage."""
    kept = {name: recipe[name] for name in (GRAPH, STAGES) if name in recipe}
    names = dict.fromkeys(use.section for use in known_uses(recipe).values())
    return yaml.safe_dump(kept | {name: dict(recipe.get(name, {})) for name in names}, sort_keys=False)
