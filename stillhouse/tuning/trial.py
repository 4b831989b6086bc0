"""One trial: runs the recipe with changed settings and measures the result on the dev questions."""

from __future__ import annotations

import dataclasses
import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.artifacts import digest_json, write_whole_json
from stillhouse.context import WORK_ROOT, Context, device
from stillhouse.environment_variables import environment_variables
from stillhouse.monitoring.activity import doing
from stillhouse.steps.execute import execute
from stillhouse.steps.spec import Paths, Step
from stillhouse.steps.spec import Report as StepReport
from stillhouse.tuning.space import Settings
from stillhouse.tuning.trial_curve import CurveMonitor, Report, TrialCurve, written_rows
from stillhouse.tuning.trial_graph import TrialGraph, link_made, link_shared
from stillhouse.workflow.graph import ARTIFACTS, CORPUS, Use
from stillhouse.workflow.in_process import up_to_date

if TYPE_CHECKING:
    from stillhouse.tuning.dev_figure import DevFigure

TRIALS = Path("trials")
SHARED = Path("shared") / ARTIFACTS
WORK = Path("work")
FIGURES = Path("figures")


@dataclass(frozen=True)
class Place:
    """The folders of a search: `folder` is its own, `workspace` has the artifacts of the recipe's own run."""

    folder: Path
    workspace: Path

    @property
    def shared(self) -> Path:
        return self.folder / SHARED

    def trial(self, settings: Settings) -> Path:
        """The folder of a trial, which depends only on its settings."""
        return self.folder / TRIALS / self._name(settings)

    def figure(self, settings: Settings) -> Path:
        """The file with a trial's figures, which stays when the trial is removed."""
        return self.folder / FIGURES / f"{self._name(settings)}.json"

    def _name(self, settings: Settings) -> str:
        return digest_json(dict(settings))[:16]


def run_trial(graph: TrialGraph, place: Place, settings: Settings, report: Report) -> DevFigure:
    """Run a trial and return its figure, which is also saved to a file.

    `settings` are those that differ from the recipe's. Finished work is not repeated, and an interrupted training
    resumes from its checkpoint. An exception from `report` ends the trial. Errors in the steps are raised.
    """
    from stillhouse.tuning.dev_figure import measure_dev

    kept = place.figure(settings)
    if kept.is_file():
        return read_figure(kept)
    folder = place.trial(settings)
    root = folder / ARTIFACTS
    configs = graph.configs(settings)
    link_shared(graph, place.shared, root)
    curve = TrialCurve(graph.trainings, report)
    with work_in(folder / WORK), doing("a trial", curve.how_far):
        for use in graph.own:
            if not _is_done(use, configs[use.name], place.workspace, root):
                execute(
                    followed(use, curve) if use.name in graph.trainings else use.step,
                    configs[use.name],
                    use.input_paths(root),
                    use.output_paths(root),
                )
            elif use.name in graph.trainings:
                rows = written_rows(root / use.name / "curves")
                if rows:
                    curve.follow(use.name, rows, rows[-1].step or 1)
        context = Context(folder / WORK, device(), quiet=True)
        figure = measure_dev(root / CORPUS["corpus"], root / graph.retriever, root / graph.index / "index", context)
    content = {"settings": dict(settings), "query_ids": figure.query_ids, "reciprocal_ranks": figure.ranks_Q.tolist()}
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_whole_json(kept, content)
    return figure


def read_figure(path: Path) -> DevFigure:
    """Read a trial's figure as written by `run_trial`."""
    import numpy as np

    from stillhouse.tuning.dev_figure import DevFigure

    content = json.loads(path.read_text(encoding="utf-8"))
    return DevFigure(tuple(content["query_ids"]), np.array(content["reciprocal_ranks"], dtype=np.float64))


def followed(use: Use, curve: TrialCurve) -> Step:
    """The step of a training with a monitor that reports its curve to the trial."""

    def run(config: Any, inputs: Paths, outputs: Paths, context: Context) -> StepReport:
        heard = dataclasses.replace(context, monitor=CurveMonitor(context.monitor, curve, use.name))
        return use.step.run(config, inputs, outputs, heard)

    return dataclasses.replace(use.step, run=run)


def work_in(folder: Path) -> AbstractContextManager[None]:
    """Keep unfinished work in `folder` while the block runs, so that it is removed with the trial."""
    return environment_variables({WORK_ROOT: str(folder)})


def _is_done(use: Use, config: Any, workspace: Path, root: Path) -> bool:
    """Whether a use of a trial need not run: the workspace or an earlier try has its outputs."""
    return link_made(use, config, workspace, root) or up_to_date(use, config, root)
