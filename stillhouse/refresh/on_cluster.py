"""The two tasks of the Kubeflow refresh that are no steps: how far it goes, and the promotion of what was made.

Between them the steps of the chosen rung are tasks of their own. Each of the two works in a clone of its own, which is
gone when it ends; what it needs comes as artifacts.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stillhouse.config import build
from stillhouse.errors import InputError
from stillhouse.graph import ARTIFACTS
from stillhouse.refresh.graph import CHAMPION, FULL
from stillhouse.refresh.plan import Rung, Thresholds
from stillhouse.refresh.run import decide, release
from stillhouse.refresh.workspace import PARAMS, bring_champion, drop_stale, open_clone
from stillhouse.steps.registry import find_step
from stillhouse.surfaces.recipes import load_recipe
from stillhouse.versions.git import Git
from stillhouse.versions.promotion import REFUSED, Outcome
from stillhouse.versions.releases import Overtaken, Release, read_history


@dataclass(frozen=True)
class Asked:
    """What both tasks are asked: the repository and branch of the releases, the recipe, thresholds and rules."""

    releases: str
    branch: str
    recipe: str
    thresholds: Mapping[str, Any]
    judge: Mapping[str, Any]

    @property
    def checked(self) -> tuple[Thresholds, Any]:
        """Thresholds and rules, checked. Raises `InputError` for what is out of range."""
        return build(Thresholds, self.thresholds, "refresh"), build(find_step("judge").config, self.judge, "judge")

    def clone(self, place: str) -> Git:
        """A clone whose recipe is the pipeline's own."""
        git = open_clone(self.releases, self.branch, Path(place) / "releases")
        (git.folder / PARAMS).write_text(self.recipe, encoding="utf-8")
        return git


def plan_refresh(asked: Asked, corpus: Path, outputs: Mapping[str, Path], *, again: bool) -> tuple[str, str, str]:
    """Says how far a refresh goes and writes the champion's artifacts to `outputs`.

    Returns the rung, the champion's version and why it is that rung. A challenger that was refused before makes it
    `nothing`, unless `again`.
    """
    from stillhouse.corpus.store import Corpus

    thresholds, rules = asked.checked
    with TemporaryDirectory() as place:
        git = asked.clone(place)
        champion = _champion(git, asked.releases)
        bring_champion(git, champion)
        held = git.folder / ARTIFACTS / CHAMPION
        for name, target in outputs.items():
            if name not in champion.paths:
                raise InputError(
                    f"{champion.name} holds no {name}; refresh it by `stillhouse refresh`, which can do without"
                )
            shutil.copytree(held / name, target, dirs_exist_ok=True)
        decision = decide(
            git,
            champion,
            Corpus.open(held / "corpus"),
            Corpus.open(corpus),
            thresholds=thresholds,
            judge=rules,
            recipe=load_recipe(git.folder / PARAMS),
        )
        if decision.refused and not again:
            return str(Rung.NOTHING), champion.name, decision.refused
        return str(decision.plan.rung), champion.name, decision.plan.reason


def release_refresh(asked: Asked, version: str, made: Mapping[str, Path]) -> Outcome:
    """Promotes what a rung made beside the champion `version`. `made` maps `use/output` to its folder."""
    from stillhouse.corpus.store import Corpus

    thresholds, rules = asked.checked
    with TemporaryDirectory() as place:
        git = asked.clone(place)
        champion = _champion(git, asked.releases)
        if champion.name != version:
            raise Overtaken(f"{champion.name} became champion while this ran upon {version}; start the refresh again")
        drop_stale(git.folder)
        bring_champion(git, champion)
        root = git.folder / ARTIFACTS
        for source, folder in made.items():
            shutil.copytree(folder, root / source)
        decision = decide(
            git,
            champion,
            Corpus.open(root / CHAMPION / "corpus"),
            Corpus.open(root / FULL["corpus"]),
            thresholds=thresholds,
            judge=rules,
            recipe=load_recipe(git.folder / PARAMS),
        )
        return release(git, decision, champion, rules, asked.branch or git("symbolic-ref", "--short", "HEAD"))


def say(outcome: Outcome, path: Path) -> float:
    """Writes how a promotion ended for a person, and returns 1 for a release, 0 for a refusal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    named = f" {outcome.release.name}" if outcome.release else ""
    path.write_text(f"**{outcome.kind}**{named}\n\n{outcome.reason}\n", encoding="utf-8")
    return float(outcome.kind != REFUSED)


def _champion(git: Git, where: str) -> Release:
    champion = read_history(git).champion
    if champion is None:
        raise InputError(f"nothing is released in {where} yet; `stillhouse release promote` makes the first release")
    return champion
