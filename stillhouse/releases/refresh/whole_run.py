"""The promotion of a whole run: compares what `dvc repro` made in a workspace with the champion, on the same corpus."""

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.config import build
from stillhouse.core.errors import InputError
from stillhouse.core.remote.git import Git
from stillhouse.pipeline.graph import ARTIFACTS, Use, graph_of
from stillhouse.pipeline.in_process import run_uses
from stillhouse.pipeline.recipes import configs, load_recipe, moved
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.pipeline.uses import needed
from stillhouse.releases.promotion import Candidate, Outcome, promote
from stillhouse.releases.refresh.graph import Levels, released_of
from stillhouse.releases.refresh.plan import Level
from stillhouse.releases.refresh.run import verdict
from stillhouse.releases.refresh.workspace import PARAMS, bring_champion
from stillhouse.releases.tags import Release

COMPARED = "champion_run"


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
        uses = needed(Levels(whole, champion.paths).uses_of(Level.FINE_TUNE), [COMPARED])
        run_uses(uses, {use.name: settings[use.section] for use in uses}, root, log)
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


def released_figures(whole: Collection[Use], run: str, root: Path) -> dict[str, Any]:
    """The evaluation's figures of the released system: each measure's mean and 95 % interval on test.

    `run` is the `use/output` of that system's run. Empty if the recipe does not evaluate it.
    """
    evaluated = next((use.inputs for use in whole if use.name == "evaluate"), {})
    system = next((port.removeprefix("run/") for port, place in evaluated.items() if place == run), "")
    folder = root / "evaluate" / "evaluation"
    if not system or not (folder / "metrics.json").is_file():
        return {}
    means, bounds = (
        json.loads((folder / name).read_text(encoding="utf-8")) for name in ("metrics.json", "intervals.json")
    )
    of_system = {name: [mean, bounds.get(system, {}).get(name)] for name, mean in means.get(system, {}).items()}
    return {"measures": of_system, "labels": read_manifest(folder, verify=False).facts.get("labels", "")}
