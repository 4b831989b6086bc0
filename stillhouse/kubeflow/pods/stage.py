"""The body of a Kubeflow task: runs one stage of a run in a pod, as `stillhouse run STAGE` does on a laptop.

A stage reads the folders of earlier stages, one artifact each, and hands on one folder with those of its own steps. The
steps work in a folder on the work volume, named by what the stage computes and by what it reads. So a restarted process
or pod, and a run that is started again, continue with the first step that is not done.
"""

from __future__ import annotations

import gc
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from html import escape
from pathlib import Path
from typing import Any

import yaml

from stillhouse.core.artifacts import MANIFEST, digest_file, digest_json, read_manifest, whole_folder, write_whole
from stillhouse.core.context import quiet, say, work_root
from stillhouse.core.environment import environment_variables, software
from stillhouse.core.errors import ValidationFailed, access_errors
from stillhouse.core.lock import only_process
from stillhouse.core.monitoring import activity
from stillhouse.core.monitoring.settings import TASK
from stillhouse.core.monitoring.watch import watch
from stillhouse.core.own_files import link_or_copy
from stillhouse.core.terminal import warn
from stillhouse.kubeflow.pods.in_pod import hand_over_figures, run_step
from stillhouse.kubeflow.pods.process import one_line_errors
from stillhouse.kubeflow.trainjob.settings import NODES as VARIABLE
from stillhouse.kubeflow.trainjob.settings import nodes_of
from stillhouse.pipeline.graph import GATE, graph_of
from stillhouse.pipeline.graph_steps import GraphStep, Stage, stages_of
from stillhouse.pipeline.in_process import run_steps
from stillhouse.pipeline.key_names import keys_in_errors
from stillhouse.pipeline.mlflow_runs import logged
from stillhouse.pipeline.plan_files import planned
from stillhouse.pipeline.recipes import Recipe, configs, load_recipe
from stillhouse.pipeline.steps.execute import read_report, write_report
from stillhouse.pipeline.steps.old_work import DAYS, HANDED_OVER, remove_handed_over, remove_old_work
from stillhouse.pipeline.steps.places import is_fixed
from stillhouse.pipeline.steps.spec import Report

FOLDER, METRICS, PAGE = "folder", "metrics", "page"
"""The outputs of every task: the folders of its steps, its figures, and the page that Kubeflow shows."""
RECIPE, PLAN = "recipe", "plan"
"""The inputs of every task besides the stages that it reads: the run's recipe, and the digest of what it computes."""
NODES = "nodes"
"""The argument of a run's first task with the nodes that the others start, as JSON."""


DIGEST = "{}_digest"
"""The argument of a task with the digest of a stage that it reads, which Kubeflow's cache compares."""
PARAMS, NODES_FILE = "params.yaml", "nodes.json"
"""The files in the artifact `recipe`."""
VERDICT = GATE["validation"]
OWN = (FOLDER, METRICS, PAGE, RECIPE, "planned", "refreshed", "comparison", "summary")
"""The arguments with a folder that is not an earlier stage's."""
FRAME = "iframe{width:100%;height:90vh;border:1px solid #ccc}"
FIGURES = 6
"""The number of a step's figures on its task's page."""


def run_stage(name: str, values: Mapping[str, Any]) -> str:
    """Runs a stage of the recipe with its task's arguments, and returns the digest of what it hands on.

    A corpus that does not pass does not fail the task, as Kubeflow would discard the page that says why. The task skips
    the steps after it, and every task that reads the corpus stops.
    """
    with one_line_errors():
        path = Path(values[RECIPE].path) / PARAMS
        recipe = load_recipe(path)
        stage = next(stage for stage in stages_of(graph_of(recipe)) if stage.name == name)
        return StageInPod(stage, configs(recipe, RECIPE), values).run()


def step_in_pod(step: GraphStep, config: Any, root: Path) -> Report:
    """Runs one step below `root`, on the pod's processes or nodes, and reports it to Prometheus."""
    with watch(step.kind, say, task=True) as watched:
        watched.reported = True  # by this process or a node
        report = run_step(step.spec, config, step.input_paths(root), step.output_paths(root), step.name)
    free_memory()
    return report


def reported_step(step: GraphStep, config: Any, root: Path) -> Report:
    """Runs one step as `step_in_pod`, and keeps its report beside its outputs, also if the corpus does not pass."""
    try:
        report = step_in_pod(step, config, root)
    except ValidationFailed as failure:
        assert failure.report
        write_report(report_path(step, root), failure.report)
        raise
    write_report(report_path(step, root), report)
    return report


def free_memory() -> None:
    """Frees a step's memory, as the end of its process would: the next step may need the whole GPU."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def report_path(step: GraphStep, root: Path) -> Path:
    """Where a task keeps a step's report."""
    return root / step.name / "report.json"


class StageInPod:
    """A stage in its folder on the work volume. `values` has the task's artifacts by their names in the component."""

    def __init__(self, stage: Stage, settings: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self.stage, self.settings, self.values = stage, settings, values
        self.given = given_folders(values)
        self.digests = {name: stage_digest(folder) for name, folder in self.given.items()}
        of = digest_json([planned(stage, settings), self.digests, software()])[:20]
        self.root = work_root() / "stages" / f"{stage.name}-{of}"

    def run(self) -> str:
        """Runs its steps and hands over what they wrote."""
        refuse_failed_corpus(self.given.values())
        nodes = nodes_of_task(self.values, self.stage.name)
        with nodes, activity.watched(self.stage.name, quiet()), only_process(self.root, wait=say):
            self.root.mkdir(parents=True, exist_ok=True)
            for gone in remove_old_work(self.root.parent, self.stage.name, self.root.name):
                say(f"[{self.stage.name}] removed {gone}, left by a task more than {DAYS} days ago")
            remove_handed_over(self.root.parent, self.digests.values())  # what has arrived here
            for place in step_folders(self.given.values()):  # so that all lie here as in a workspace
                link = self.root / place.name
                link.unlink(missing_ok=True)  # of an earlier try, whose pod had it elsewhere
                link.symlink_to(place.absolute(), target_is_directory=True)
            recipe = Path(self.values[RECIPE].path) / PARAMS
            done = logged(recipe.parent.name, digest_file(recipe))
            try:
                run_steps(self.stage.steps, self.settings, self.root, say, self._around, run=reported_step, done=done)
            except ValidationFailed as failure:
                warn(f"stillhouse: {failure}")
                say(f"[{self.stage.name}] skipping the remaining steps: the corpus did not pass")
            digest = self._hand_over()
            write_whole(self.root / HANDED_OVER, digest)
        return digest

    @contextmanager
    def _around(self, step: GraphStep) -> Iterator[None]:
        labelled = environment_variables({TASK: step.name})  # its metrics, also in processes that it starts
        named = keys_in_errors(step.spec, Path(RECIPE), step.section, (), step.name)
        with labelled, activity.watched(step.name, quiet()), named, access_errors():
            yield

    def _hand_over(self) -> str:
        """Puts what the steps wrote where Kubeflow collects it, and returns its digest."""
        paths = {
            step.name: report_path(step, self.root) for step in self.stage.steps if (self.root / step.name).is_dir()
        }
        # A pod that was killed between a step's outputs and its report leaves none.
        reports = {name: read_report(path, {}) if path.is_file() else Report("") for name, path in paths.items()}
        artifact = self.values[FOLDER]
        with activity.doing("handing over what it wrote"), whole_folder(Path(artifact.path)) as staging:
            for name in reports:
                shutil.copytree(self.root / name, staging / name, copy_function=link_or_copy)
        digest = stage_digest(Path(artifact.path))
        artifact.metadata |= {"digest": digest}
        figures = {f"{name}/{key}": value for name, of in reports.items() for key, value in of.metrics.items()}
        hand_over_figures(self.values[METRICS], figures)
        write_whole(Path(self.values[PAGE].path), page(self.stage, reports, Path(artifact.path)))
        return digest


def given_folders(values: Mapping[str, Any]) -> dict[str, Path]:
    """The folders of earlier stages among a task's arguments, by their names."""
    return {name: Path(value.path) for name, value in values.items() if hasattr(value, "path") and name not in OWN}


def write_recipe(recipe: Recipe, folder: Path, nodes: str = "") -> None:
    """Writes the recipe that the tasks of a run read, and which nodes they start."""
    write_whole(folder / PARAMS, yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True))
    write_whole(folder / NODES_FILE, nodes)


def nodes_of_task(values: Mapping[str, Any], task: str) -> AbstractContextManager[None]:
    """Tells the steps of a task, inside the context, which nodes they start."""
    path = Path(values[RECIPE].path) / NODES_FILE
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return environment_variables({VARIABLE: nodes_of(text, task)})


def plan_digest(stage: Stage, settings: Mapping[str, Any], run: str) -> str:
    """The digest of what a stage computes, from which Kubeflow knows whether an earlier run did the same.

    A stage that reads a place whose content may change tomorrow is not the same in another run.
    """
    fixed = all(is_fixed(step.spec, settings[step.name]) for step in stage.steps)
    return digest_json([planned(stage, settings), software(), "" if fixed else run])[:20]


def stage_digest(folder: Path) -> str:
    """The digest of a stage's folder: that of the manifests in it, which cover all its files."""
    manifests = sorted(folder.glob(f"*/*/{MANIFEST}"))
    found = {path.parent.relative_to(folder).as_posix(): read_manifest(path.parent, verify=False) for path in manifests}
    return digest_json({place: manifest.digest for place, manifest in found.items()})[:20]


def step_folders(given: Iterable[Path]) -> list[Path]:
    """The folders of the steps of some stages."""
    return [path for folder in given for path in sorted(folder.iterdir()) if path.is_dir()]


def refuse_failed_corpus(given: Iterable[Path]) -> None:
    """Raises `ValidationFailed` if one of these stages validated the corpus and it did not pass."""
    for folder in given:
        verdict = folder / VERDICT
        facts: dict[str, Any] = read_manifest(verdict).facts if verdict.is_dir() else {"passed": True}
        if facts.get("passed") is not True:
            failed = ", ".join(facts.get("failed", [])) or "no verdict"
            raise ValidationFailed(
                f"the corpus did not pass validation ({failed}); open the page of the task `corpus`, fix the "
                "corpus or raise the threshold in the recipe, and start the run again. Nothing was trained"
            )


def page(stage: Stage, reports: Mapping[str, Report], folder: Path) -> str:
    """The steps of a stage with their first figures, and below them the pages and loss curves of its steps.

    It is self-contained: Kubeflow shows it in a frame without network access.
    """
    from stillhouse.core.pages import shared_style
    from stillhouse.evaluation.report.curves import loss_plot, read_curves

    rows, parts = [], []
    for step in stage.steps:
        if step.name not in reports:
            continue
        report = reports[step.name]
        figures = list(report.metrics.items())
        shown = ", ".join(f"{escape(key)} {value:.4g}" for key, value in figures[:FIGURES])
        more = f", and {len(figures) - FIGURES} more" if len(figures) > FIGURES else ""
        rows.append(f"<tr><td>{escape(step.name)}<td>{escape(report.summary)}<td>{shown}{more}")
        outputs = step.output_paths(folder)
        if report.html:
            text = (next(iter(outputs.values())) / report.html).read_text(encoding="utf-8")
            # In a frame of its own, since every page brings its style.
            parts.append(f'<h2>{escape(step.name)}</h2><iframe srcdoc="{escape(text)}"></iframe>')
        elif "curves" in outputs and not (curves := read_curves(outputs["curves"])).empty:
            parts.append(f"<h2>{escape(step.name)}</h2><figure>{loss_plot(curves, step.name)}</figure>")
    style = shared_style() + FRAME
    head = f'<meta charset="utf-8"><title>{escape(stage.name)}</title><style>{style}</style>'
    table = f"<table><tr><th>step<th>what it made<th>figures{''.join(rows)}</table>"
    body = f"<h1>{escape(stage.name)}</h1>{table}{''.join(parts)}"
    return f"<!doctype html>\n<html lang=en><head>{head}</head><body>{body}</body></html>\n"
