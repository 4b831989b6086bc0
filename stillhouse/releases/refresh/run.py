"""One refresh, from the current corpus to a release, a refusal, or nothing to do; and the promotion of a whole run.

A whole run is what `dvc repro` made in a workspace. It is compared with the champion on the same corpus.
"""

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import digest_json, read_manifest
from stillhouse.core.config import build
from stillhouse.core.errors import InputError
from stillhouse.core.lock import only_process
from stillhouse.core.monitoring.activity import doing
from stillhouse.core.remote.address import refuse_secret
from stillhouse.core.remote.git import Git
from stillhouse.corpus.difference import Difference, difference, fingerprint
from stillhouse.corpus.store import Corpus
from stillhouse.pipeline.graph import ARTIFACTS, PRETRAINING, GraphStep, graph_of
from stillhouse.pipeline.graph_steps import needed
from stillhouse.pipeline.in_process import run_steps
from stillhouse.pipeline.recipes import configs, load_recipe, moved
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.pipeline.workspace import PARAMS, write_settings
from stillhouse.releases.promotion import ALREADY, REFUSED, Candidate, Outcome, promote
from stillhouse.releases.refresh.graph import CHAMPION, Levels, before, released_of, runs_of, with_words
from stillhouse.releases.refresh.plan import BUMPS, Level, Plan, Thresholds, plan
from stillhouse.releases.refresh.workspace import bring_champion, open_clone, write_stages
from stillhouse.releases.tags import Overtaken, Release, find_refusal, note_refusal, read_history

VERDICT = Path("compare_release") / "verdict"
COMPARED = "champion_run"


@dataclass(frozen=True)
class Refreshed:
    """How a refresh ended: the level, the reason for it, and the promotion's outcome if there was one."""

    plan: Plan
    outcome: Outcome | None = None

    @property
    def sentence(self) -> str:
        said = f"{self.plan.level}: {self.plan.reason}"
        return f"{said}; {self.outcome.kind}: {self.outcome.reason}" if self.outcome else said


@dataclass(frozen=True)
class Request:
    """A request: the repository of the releases, where the corpus comes from, and the parameters.

    `source` holds the settings of `ingest` that differ from the last release's, such as `revision`. `again` retries a
    corpus that was refused before.
    """

    repo: str
    folder: Path
    branch: str = ""
    source: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    thresholds: Thresholds = dataclasses.field(default_factory=Thresholds)
    rules: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    plan_only: bool = False
    again: bool = False

    def __post_init__(self) -> None:
        refuse_secret(self.repo, "the repository of the releases")
        refuse_secret(str(self.source.get("repo", "")), "repo")


def refresh(request: Request, log: Callable[[str], None] = lambda line: None) -> Refreshed:
    """Brings the released retriever up to date with its corpus.

    Raises `InputError` for what cannot be read and while another refresh works in the folder, `ValidationFailed` for a
    corpus that does not pass (the old release stays), and `Overtaken` if another release was made meanwhile.
    """
    with only_process(request.folder.absolute()):
        rules: Any = build(find_step("compare-release").config, request.rules, "compare-release")
        git = open_clone(request.repo, request.branch, request.folder)
        champion = champion_of(git, request.repo)
        root = request.folder / ARTIFACTS
        write_settings(request.folder, {"ingest": request.source})
        recipe = moved(load_recipe(request.folder / PARAMS), request.folder, Path())
        settings = with_words(configs(recipe, f"{request.folder / PARAMS}"))
        log(f"[refresh] the champion is {champion.name} ({champion.record['summary']})")
        bring_champion(git, champion)
        run_steps(before(graph_of(recipe)), settings, root, log)

        decision = decide(git, champion, root / "ingest" / "corpus", request.thresholds, rules)
        planned = decision.plan
        log(f"[refresh] {planned.level}: {planned.reason}")
        if decision.refused and not request.again:
            return Refreshed(planned, Outcome(REFUSED, champion, decision.refused))
        if planned.level == Level.NOTHING or request.plan_only:
            return Refreshed(planned)

        steps = Levels(graph_of(recipe), champion.paths).steps_of(planned.level)
        run_steps(steps, {step.name: settings[step.section] for step in steps}, root, log)
        return Refreshed(planned, release(git, decision, champion, rules, request.branch))


def champion_of(git: Git, repo: str) -> Release:
    """The release in use. Raises `InputError` if there is none."""
    champion = read_history(git).champion
    if champion is None:
        raise InputError(f"nothing is released in {repo} yet; run `dvc repro`, then `stillhouse release promote`")
    return champion


@dataclass(frozen=True)
class Decision:
    """How far a refresh goes. `refused` says why its challenger was refused before, and `key` names that note."""

    plan: Plan
    changed: Difference
    key: str
    refused: str


@doing("comparing the corpora")
def decide(git: Git, champion: Release, corpus: Path, thresholds: Thresholds, rules: Any) -> Decision:
    """Compares a corpus with the champion's, which is in the clone.

    Raises `InputError` if the champion lacks what the level starts from.
    """
    recipe = load_recipe(git.folder / PARAMS)
    old, new = Corpus.open(git.folder / ARTIFACTS / CHAMPION / "corpus"), Corpus.open(corpus)
    changed = difference(old, new)
    planned = plan(changed, thresholds, pretrains=any(step.name == PRETRAINING for step in graph_of(recipe)))
    if planned.level == Level.PRETRAIN and "encoder" not in champion.paths:
        raise InputError(f"{champion.name} holds no encoder, which the level {planned.level} starts from")
    training = {name: values for name, values in recipe.items() if name != "ingest"}
    refused_by = [dataclasses.asdict(rules), dataclasses.asdict(thresholds)]
    key = digest_json([fingerprint(new), champion.tag, refused_by, training])[:16]
    refused = find_refusal(git, key)
    refusal = f"this corpus was refused before: {refused}; use --again to retry it" if refused else ""
    return Decision(planned, changed, key, refusal)


def release(git: Git, decision: Decision, champion: Release, rules: Any, branch: str, base: str = "") -> Outcome:
    """Promotes what a level made in a clone's `artifacts/`, or notes that it was refused.

    `base` is the commit that params.yaml and dvc.yaml were made from; "" = the clone's HEAD.
    """
    folder, planned = git.folder, decision.plan
    whole = graph_of(load_recipe(folder / PARAMS))
    levels = Levels(whole, champion.paths)
    write_stages(folder, (*before(whole), *levels.steps_of(planned.level)), champion)
    paths = {name: (ARTIFACTS / place).as_posix() for name, place in levels.released_by(planned.level).items()}
    summary = f"{planned.level} on {champion.name}: {planned.reason}"
    facts = {"level": str(planned.level), "difference": decision.changed.plain()}
    candidate = Candidate(folder, paths, BUMPS[planned.level], summary, facts, base)
    compare = partial(_compare, folder / ARTIFACTS, planned.level, rules, champion)
    outcome = promote(candidate, compare, branch, recorded=False)
    now = read_history(git, fetch=False).champion
    rolled_back = outcome.kind == ALREADY and outcome.release and now and outcome.release.tag != now.tag
    if outcome.kind == REFUSED or rolled_back:
        note_refusal(git, decision.key, champion, outcome.reason)
    return outcome


def _compare(root: Path, level: Level, config: Any, champion: Release, against: Release) -> dict[str, Any]:
    """Compares both runs. The champion must still be the one beside which the challenger was made."""
    if against.tag != champion.tag:
        raise Overtaken(
            f"{against.name} became champion while this refresh ran on {champion.name}; repeat it to start from there"
        )
    inputs = {"corpus": root / "ingest" / "corpus"}
    inputs |= {system: root / place for system, place in runs_of(level).items()}
    if level == Level.INDEX and "index" in champion.paths:
        inputs |= {f"{CHAMPION}_index": root / CHAMPION / "index", "challenger_index": root / "challenger_index/index"}
    return verdict(root, config, inputs)


def verdict(root: Path, config: Any, inputs: Mapping[str, Path]) -> dict[str, Any]:
    """Runs the step `compare-release` and returns what it found."""
    execute(find_step("compare-release"), config, inputs, {"verdict": root / VERDICT})
    return dict(read_manifest(root / VERDICT).facts)


def promote_whole_run(
    folder: Path,
    *,
    branch: str = "",
    bump: str = "major",
    rules: Mapping[str, Any] | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Releases what a workspace's run chose as best, or else distilled, unless it is worse than the champion on test.

    For the comparison, the champion's retriever is fetched and indexes the workspace's corpus.
    """
    config: Any = build(find_step("compare-release").config, rules or {}, "compare-release")
    root = folder / ARTIFACTS
    recipe = load_recipe(folder / PARAMS)
    whole = graph_of(recipe, str(folder / PARAMS))
    places = released_of(whole)
    paths = {name: (ARTIFACTS / place).as_posix() for name, place in places.items()}
    for path in paths.values():
        if not (folder / path / "manifest.json").is_file():
            raise InputError(f"{folder / path} does not exist; run the pipeline (`dvc repro`), then promote")

    settings = configs(moved(recipe, folder, Path()), str(folder / PARAMS))

    def compare(champion: Release) -> dict[str, Any]:
        git = Git.of(folder)
        bring_champion(git, champion)
        steps = needed(Levels(whole, champion.paths).steps_of(Level.FINE_TUNE), [COMPARED])
        run_steps(steps, {step.name: settings[step.section] for step in steps}, root, log)
        inputs = {
            "corpus": root / places["corpus"],
            "champion": root / COMPARED / "run",
            "challenger": root / places["run"],
        }
        return verdict(root, config, inputs)

    passages = read_manifest(root / places["corpus"], verify=False).facts.get("passages", "?")
    summary = f"a whole run on {passages} passages"
    facts = {"level": "whole_run", "figures": released_figures(whole, places["run"], root)}
    return promote(Candidate(folder, paths, bump, summary, facts), compare, branch)


def released_figures(whole: Collection[GraphStep], run: str, root: Path) -> dict[str, Any]:
    """The evaluation's figures of the released system: each measure's mean and 95 % interval on test.

    `run` is the `step/output` of that system's run. Empty if the recipe does not evaluate it.
    """
    evaluated = next((step.inputs for step in whole if step.name == "evaluate"), {})
    system = next((port.removeprefix("run/") for port, place in evaluated.items() if place == run), "")
    folder = root / "evaluate" / "evaluation"
    if not system or not (folder / "metrics.json").is_file():
        return {}
    means, bounds = (
        json.loads((folder / name).read_text(encoding="utf-8")) for name in ("metrics.json", "intervals.json")
    )
    of_system = {name: [mean, bounds.get(system, {}).get(name)] for name, mean in means.get(system, {}).items()}
    return {"measures": of_system, "labels": read_manifest(folder, verify=False).facts.get("labels", "")}
