"""What a refresh on a cluster is asked: the parameters of the pipeline `refresh`, checked when they are read.

Thresholds and rules have the defaults, ranges and help texts of the classes that they are handed to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from stillhouse.config import build, field_types, setting
from stillhouse.errors import InputError
from stillhouse.releases.refresh.plan import Thresholds
from stillhouse.remote.address import refuse_secret
from stillhouse.steps.compare_release import Config as Rules
from stillhouse.workflow.graph import STAGES, known_uses
from stillhouse.workflow.recipes import Recipe

SOURCE = ("source", "repo", "revision")
"""Settings of `ingest` that say where the corpus comes from."""
RULES = ("measure", "alpha", "most_loss", "least_queries", "bootstrap_samples", "randomisation_samples")
"""Settings of `compare-release` that a person may set; its seed stays what it is, lest somebody tries until it fits."""


def _of(cls: type, name: str) -> Any:
    """A field as another settings dataclass declares it."""
    [found] = [field for field in dataclasses.fields(cls) if field.name == name]
    return dataclasses.field(default=found.default, metadata=found.metadata)


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameters of the pipeline, as its run form shows them."""

    releases: str = setting("", "the git repository of the releases, as a URL", location=True, required=True)
    repo: str = setting(
        "", "the DVC repository that the corpus is read from; empty = source is a place of its own", location=True
    )
    source: str = setting("", "the corpus: its path in repo, or a place or name that `ingest` knows", location=True)
    revision: str = setting("", "the branch, tag or commit of repo; empty = its default branch")
    branch: str = setting("", "the branch that releases are committed to; empty = the repository's own")
    fine_tune_above: float = _of(Thresholds, "fine_tune_above")
    pretrain_above: float = _of(Thresholds, "pretrain_above")
    measure: str = _of(Rules, "measure")
    alpha: float = _of(Rules, "alpha")
    most_loss: float = _of(Rules, "most_loss")
    least_queries: int = _of(Rules, "least_queries")
    bootstrap_samples: int = _of(Rules, "bootstrap_samples")
    randomisation_samples: int = _of(Rules, "randomisation_samples")
    again: bool = setting(False, "try a corpus again whose challenger was refused")

    def __post_init__(self) -> None:
        from stillhouse.evaluation.measures import parse_measures

        if not self.releases:
            raise InputError("releases is empty; give the git repository of the releases, as a URL")
        for name in ("releases", "repo"):
            refuse_secret(getattr(self, name), name)
        self.thresholds  # noqa: B018  (refused here and not in the middle of a run)
        if len(parse_measures(self.measure)) != 1:
            raise InputError(f"measure {self.measure!r}: one decides; name RR@10 or another")

    @property
    def thresholds(self) -> Thresholds:
        # A pipeline decides once, before anything is trained; the trial of `query_only` is decided after a training.
        return Thresholds(fine_tune_above=self.fine_tune_above, pretrain_above=self.pretrain_above, query_only_gain=1)

    @property
    def rules(self) -> Rules:
        return Rules(**{name: getattr(self, name) for name in RULES})

    @property
    def corpus(self) -> dict[str, str | None]:
        """Settings of `ingest`, as a release's recipe is to have them."""
        # An empty field of the form is no repository, and the default revision.
        return {name: getattr(self, name) or None for name in SOURCE}


def read_parameters(values: Mapping[str, Any]) -> Parameters:
    """The parameters among a component's arguments, or among those of a run."""
    chosen = {name: values[name] for name in field_types(Parameters) if name in values}
    return build(Parameters, chosen, "pipeline refresh")


def write_recipe(recipe: Recipe) -> str:
    """A recipe as the pipeline carries it; every use has a section, as DVC looks for the parameters of each stage."""
    names = [
        *([STAGES] if STAGES in recipe else []),
        *dict.fromkeys(use.section for use in known_uses(recipe).values()),
    ]
    return yaml.safe_dump({name: dict(recipe.get(name, {})) for name in names}, sort_keys=False)
