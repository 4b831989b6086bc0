"""The body of the rung `query_only` of a Kubeflow refresh: one task that decides in its pod how far to go.

It trains the query tower against the champion's index. If dev shows that to be enough, only the choice of the system
is left to do; otherwise the task runs the uses of `fine_tune` that are not done yet. Two groups of tasks in the
pipeline, with a condition between them, would make the object of a run too large.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stillhouse.artifacts import write_whole_json
from stillhouse.context import say
from stillhouse.kubernetes.pods.component import one_line_errors
from stillhouse.kubernetes.pods.pod_preflight import check_pod
from stillhouse.kubernetes.pods.refresh import ASKED, MADE, NOT_MADE, read_asked, read_planned
from stillhouse.kubernetes.pods.task import Work, open_stage, port_name
from stillhouse.releases.refresh.graph import QUERY_TOWER, Ladder
from stillhouse.releases.refresh.plan import Plan, Rung
from stillhouse.workflow.graph import Use, graph_of, needed
from stillhouse.workflow.recipes import configs
from stillhouse.yaml_file import parse_yaml


def run_trial(name: str, values: Mapping[str, Any]) -> None:
    """Runs the task with its arguments: input and output artifacts, the plan, and the run's id."""
    from stillhouse.releases.refresh.on_cluster import Planned, write_summary
    from stillhouse.releases.refresh.run import tried

    with one_line_errors():
        folder = Path(values["planned"].path)
        planned, (parameters, text) = read_planned(folder), read_asked(folder)
        recipe = parse_yaml(text, "the recipe of the run")
        settings, ladder = configs(recipe, "the recipe of the run"), Ladder.of(graph_of(recipe))

        def works(uses: Iterable[Use]) -> list[Work]:
            return [Work(use, recipe.get(use.section, {}), settings[use.section]) for use in uses]

        every = works(ladder.climbed_from(Rung.QUERY_ONLY))
        check_pod(any(work.use.step.parallel for work in every))
        trial = needed(ladder.uses_of(Rung.QUERY_ONLY), [QUERY_TOWER])
        with open_stage(name, every, values) as stage:
            stage.works = works(trial)
            stage.run()
            found = tried(Plan(planned.rung, planned.reason), stage.root, parameters.thresholds)
            say(f"[{name}] {found.rung}: {found.reason}")
            stage.works += works(use for use in ladder.uses_of(found.rung) if use not in trial)
            stage.run()
            refreshed = Path(values["refreshed"].path)
            write_summary(refreshed, Planned(found.rung, planned.champion, found.reason))
            shutil.copyfile(folder / ASKED, refreshed / ASKED)
            _leave_out_rest(values)


def _leave_out_rest(values: Mapping[str, Any]) -> None:
    """Marks the outputs that this run did not need."""
    for place in MADE.values():
        output = values.get(port_name(place))
        if output is not None and not Path(output.path).exists():
            write_whole_json(Path(output.path) / NOT_MADE, {"not_made": place})
