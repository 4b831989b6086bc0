"""The tasks of the Kubeflow refresh that are not steps: the first look, the plan, and the promotion.

Between plan and promotion, one task runs the steps of the chosen level. Each task here works in its own clone, which is
removed when it ends, and gets what it needs as artifacts.
"""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from stillhouse.core.artifacts import write_whole, write_whole_json
from stillhouse.core.errors import InputError
from stillhouse.core.pages import as_text
from stillhouse.core.remote.git import Git, GitFailed
from stillhouse.core.yaml_file import parse_yaml
from stillhouse.pipeline.graph import ARTIFACTS, graph_of
from stillhouse.pipeline.recipes import copied, load_recipe
from stillhouse.pipeline.workspace import PARAMS
from stillhouse.releases.promotion import REFUSED, Outcome
from stillhouse.releases.refresh.graph import CHAMPION, Levels
from stillhouse.releases.refresh.plan import SOURCE, Level, Parameters, Plan
from stillhouse.releases.refresh.run import champion_of, decide, release
from stillhouse.releases.refresh.workspace import bring_champion, open_clone
from stillhouse.releases.tags import branch_of, changed_files, last_release, read_history, refuse_changed

RECORD, PAGE = "refresh.json", "refresh.md"
"""How far a refresh went, for programs and for people; the plan and the promotion both write these files."""


@dataclass(frozen=True)
class Planned:
    """How far a refresh goes: the level, the champion's version that it starts from, and the reason.

    `refused`: the challenger of this corpus was refused before, so that the level is `nothing`.
    """

    level: Level
    champion: str
    reason: str
    refused: bool = False


def look(parameters: Parameters) -> str:
    """Checks both repositories, without reading any of their data, and returns the champion's version.

    It runs in the first task, before hours of work. Raises `InputError` if a repository cannot be read, if a branch,
    revision or path does not exist, or if nothing is released yet.
    """
    from stillhouse.core.remote.dvc_source import look_up

    with TemporaryDirectory() as place:
        git = open_clone(parameters.releases, parameters.branch, Path(place) / "releases")
        champion = champion_of(git, parameters.releases)
    if parameters.repo:
        look_up(parameters.repo, parameters.revision, parameters.source)
    return champion.name


def plan_refresh(parameters: Parameters, recipe: str, corpus: Path, released: Path) -> Planned:
    """Decides how far a refresh goes, and copies the champion's artifacts that the level starts from into `released`.

    If the challenger was refused before, the level is `nothing`, unless it is to be tried again. Raises `InputError` if
    a promotion would overwrite what people changed since the last release.
    """
    with TemporaryDirectory() as place:
        git = _clone(parameters, recipe, Path(place))
        champion = champion_of(git, parameters.releases)
        bring_champion(git, champion, ("corpus",))
        decision = decide(git, champion, corpus, parameters.thresholds, parameters.rules)
        level = decision.plan.level
        if decision.refused and not parameters.again:
            return Planned(Level.NOTHING, champion.name, decision.refused, refused=True)
        if level != Level.NOTHING:
            branch = parameters.branch or branch_of(git)
            refuse_changed(git, _made_from(git, recipe), git.commit_of("HEAD"), champion, branch)
        names = taken_from_champion(Levels.of(graph_of(load_recipe(git.folder / PARAMS))), level)
        for name in names:
            if name not in champion.paths:
                raise InputError(
                    f"{champion.name} holds no {name}, which the level {level} of this pipeline starts from; use "
                    "`stillhouse refresh`, which does not need it"
                )
        if names:
            bring_champion(git, champion, names)
        for name in names:
            shutil.copytree(git.folder / ARTIFACTS / CHAMPION / name, released / name, dirs_exist_ok=True)
        return Planned(level, champion.name, decision.plan.reason)


def taken_from_champion(levels: Levels, level: Level) -> tuple[str, ...]:
    """The champion's artifacts that the steps of a level read."""
    read = {source for step in levels.steps_of(level) for source in step.inputs.values()}
    return tuple(sorted(source.partition("/")[2] for source in read if source.startswith(f"{CHAMPION}/")))


def release_refresh(parameters: Parameters, recipe: str, planned: Planned, made: Mapping[str, Path]) -> Outcome:
    """Promotes what the level of `planned` made beside its champion. `made` maps `step/output` to its folder.

    A task that was killed after its push finds its own release and reports that. Raises `Overtaken` if another release
    became champion.
    """
    with TemporaryDirectory() as place:
        git = _clone(parameters, recipe, Path(place))
        champion = read_history(git).find(planned.champion)
        bring_champion(git, champion)
        root = git.folder / ARTIFACTS
        for source, folder in made.items():
            shutil.copytree(folder, root / source)
        decision = decide(git, champion, root / "ingest" / "corpus", parameters.thresholds, parameters.rules)
        decision = replace(decision, plan=Plan(planned.level, planned.reason))
        return release(git, decision, champion, parameters.rules, parameters.branch, _made_from(git, recipe))


def write_summary(folder: Path, planned: Planned, outcome: Outcome | None = None) -> str:
    """Writes how far a refresh went and how it ended to `folder`; returns it as a page for people."""
    content: dict[str, Any] = {"level": str(planned.level), "champion": planned.champion, "reason": planned.reason}
    lines = [f"**{planned.level}** on {as_text(planned.champion)}: {as_text(planned.reason)}"]
    if planned.refused:
        content |= {"outcome": REFUSED}
    if outcome:
        version = outcome.release.name if outcome.release else ""
        content |= {"outcome": outcome.kind, "why": outcome.reason, "release": version}
        lines += ["", f"**{outcome.kind}**{f' {as_text(version)}' if version else ''}: {as_text(outcome.reason)}"]
    page = "\n".join(lines) + "\n"
    write_whole(folder / PAGE, page)
    write_whole_json(folder / RECORD, content)
    return page


def _clone(parameters: Parameters, recipe: str, place: Path) -> Git:
    """A clone with the pipeline's own recipe and the requested corpus."""
    git = open_clone(parameters.releases, parameters.branch, place / "releases")
    content = yaml.safe_load(recipe)
    content["ingest"] |= parameters.corpus
    (git.folder / PARAMS).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return git


def _made_from(git: Git, recipe: str) -> str:
    """The commit that params.yaml and dvc.yaml of this run were made from.

    It is the clone's HEAD if only releases changed them, or if people changed params.yaml to the pipeline's own recipe;
    otherwise it is the last release.
    """
    head, last = git.commit_of("HEAD"), last_release(git)
    theirs = changed_files(git, last, head)
    with suppress(GitFailed):  # raised if params.yaml was removed
        if theirs == [PARAMS] and _settings(git.read(head, PARAMS)) == _settings(recipe):
            return head
    return last if theirs else head


def _settings(text: str) -> dict[str, dict[str, Any]]:
    """The settings in a params.yaml, without the location of the corpus; empty for a file that is not a recipe."""
    try:
        content = parse_yaml(text, PARAMS) or {}
        found = copied({name: section for name, section in content.items() if section})
    except (InputError, AttributeError, TypeError, ValueError):
        return {}
    found["ingest"] = {name: value for name, value in found.get("ingest", {}).items() if name not in SOURCE}
    return found
