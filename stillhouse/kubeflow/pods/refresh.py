"""The tasks of the Kubeflow refresh: the check, the plan, the stages of the level that it decides on, the promotion.

Bad input is reported in one sentence with its remedy, and the task ends without a stack trace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.artifacts import MANIFEST, write_whole, write_whole_json
from stillhouse.core.terminal import show
from stillhouse.kubeflow.pods.in_pod import hand_over_figures, watched_task
from stillhouse.kubeflow.pods.process import SENTENCE, one_line_errors
from stillhouse.kubeflow.pods.stage import (
    METRICS,
    NODES,
    PARAMS,
    RECIPE,
    StageInPod,
    given_folders,
    refuse_failed_corpus,
    write_recipe,
)
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.graph_steps import Stage, stages_of
from stillhouse.pipeline.recipes import configs, load_recipe
from stillhouse.pipeline.steps.spec import Report
from stillhouse.releases.refresh.graph import CHALLENGER, CHAMPION, Levels, before, with_words
from stillhouse.releases.refresh.plan import Level, Parameters, read_parameters
from stillhouse.releases.refresh.plan import write_recipe as released_recipe

if TYPE_CHECKING:
    from stillhouse.releases.refresh.on_cluster import Planned

ASKED = "asked.json"
"""The file beside the recipe with the parameters of the run."""
PLANNED, REFRESHED, SUMMARY = "planned", "refreshed", "summary"
RELEASED = "released"
"""The output of the plan with the champion's artifacts that the level starts from."""


def run_check(values: Mapping[str, Any]) -> None:
    """Refuses parameters out of range, and repositories, branches and revisions that cannot be read.

    The later tasks read the parameters and the recipe in its output: as arguments of each they would make the object of
    the run too large.
    """
    from stillhouse.kubeflow.pods.run_control import TEXT
    from stillhouse.releases.refresh.on_cluster import look

    with watched_task("check"):
        parameters = read_parameters(values)
        show(f"[refresh] {look(parameters)} is in use")
        recipe = json.loads(values[TEXT])
        corpus = {name: value for name, value in parameters.corpus.items() if value or name != "source"}
        folder = Path(values[RECIPE].path)
        write_recipe({**recipe, "ingest": {**recipe.get("ingest", {}), **corpus}}, folder, values.get(NODES, ""))
        write_whole_json(folder / ASKED, asdict(parameters))


def read_asked(folder: Path) -> tuple[Parameters, str]:
    """The parameters of the run and its recipe, as a release holds it."""
    parameters = read_parameters(json.loads((folder / ASKED).read_text(encoding="utf-8")))
    return parameters, released_recipe(load_recipe(folder / PARAMS))


def read_planned(folder: Path) -> Planned:
    """The level, the champion and the reason that the plan wrote to its output."""
    from stillhouse.releases.refresh.on_cluster import RECORD, Planned

    known = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    return Planned(Level(known["level"]), known["champion"], known["reason"])


def run_first_stage(name: str, values: Mapping[str, Any]) -> str:
    """Runs a stage before the plan, and returns the digest of what it hands on."""
    with one_line_errors():
        recipe = load_recipe(Path(values[RECIPE].path) / PARAMS)
        stage = next(stage for stage in stages_of(before(graph_of(recipe))) if stage.name == name)
        return StageInPod(stage, with_words(configs(recipe, RECIPE)), values).run()


def run_plan(values: Mapping[str, Any]) -> str:
    """Runs the plan and returns the level."""
    from stillhouse.releases.promotion import REFUSED
    from stillhouse.releases.refresh.on_cluster import plan_refresh, write_summary

    with watched_task("plan"):
        given = given_folders(values)
        refuse_failed_corpus(given.values())
        parameters, recipe = read_asked(Path(values[RECIPE].path))
        [corpus] = (folder / "ingest" / "corpus" for folder in given.values() if (folder / "ingest").is_dir())
        planned = plan_refresh(parameters, recipe, corpus, Path(values[RELEASED].path) / CHAMPION)
        _show(write_summary(Path(values[REFRESHED].path), planned), values)
        if planned.level == Level.NOTHING:
            show(f"{SENTENCE}{REFUSED if planned.refused else planned.level}: {planned.reason}")
        return str(planned.level)


def run_refresh_stage(name: str, values: Mapping[str, Any]) -> str:
    """Runs the level that the plan decided on, and returns the digest of what it hands on."""
    with one_line_errors():
        planned = read_planned(Path(values[PLANNED].path))
        recipe = load_recipe(Path(values[RECIPE].path) / PARAMS)
        levels, of_sections = Levels.of(graph_of(recipe)), configs(recipe, RECIPE)
        found = Stage(CHALLENGER, levels.steps_of(planned.level))
        settings = {step.name: of_sections[step.section] for step in found.steps}
        return StageInPod(found, settings, values).run()


def run_release(values: Mapping[str, Any]) -> None:
    """Runs the promotion. A refusal is not a failure: the old release stays, and the summary says why.

    Its last sentence is for `submit --wait`, as that of the plan is if nothing is promoted.

    Prometheus is notified once the release is out: after the verdict, the push may still fail or another may win.
    """
    from stillhouse.releases.promotion import REFUSED
    from stillhouse.releases.refresh.on_cluster import release_refresh, write_summary

    with watched_task("promote") as watched:
        planned = read_planned(Path(values[PLANNED].path))
        parameters, recipe = read_asked(Path(values[RECIPE].path))
        made: dict[str, Path] = {}
        for folder in given_folders(values).values():
            made |= {path.parent.relative_to(folder).as_posix(): path.parent for path in folder.glob(f"*/*/{MANIFEST}")}
        outcome = release_refresh(parameters, recipe, planned, made)
        watched.report = Report(outcome.reason, facts={"released": outcome.in_use})
        _show(write_summary(Path(values[REFRESHED].path), planned, outcome), values)
        show(f"{SENTENCE}{outcome.kind}: {outcome.reason}")
        hand_over_figures(values[METRICS], {"released": float(outcome.kind != REFUSED)})


def _show(page: str, values: Mapping[str, Any]) -> None:
    """Prints a page and writes it to the artifact that Kubeflow shows."""
    show(*f"[refresh] {page}".split("\n"))
    write_whole(Path(values[SUMMARY].path), page)
