"""The bodies of the Kubeflow refresh's components: their arguments become parameters and folders.

Bad input is reported in one sentence with its remedy, and the task ends without a stack trace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from stillhouse.artifacts import write_whole, write_whole_json
from stillhouse.kubernetes.cluster.waiting import SENTENCE
from stillhouse.kubernetes.pods.component import watched_task
from stillhouse.kubernetes.pods.pod_preflight import check_pod
from stillhouse.kubernetes.pods.task import refuse_failed_corpus
from stillhouse.releases.lineage import lineage
from stillhouse.releases.refresh.parameters import Parameters, read_parameters, write_recipe
from stillhouse.releases.refresh.plan import Rung
from stillhouse.steps.execute import write_metrics
from stillhouse.steps.spec import Report
from stillhouse.terminal import show

if TYPE_CHECKING:
    from stillhouse.releases.refresh.on_cluster import Planned

TAKEN = ("retriever", "encoder", "reranker", "generator")
"""Outputs of the plan component: the champion's artifacts that a rung may start from."""
MADE = {
    "corpus": "ingest/corpus",
    "validation": "validate/validation",
    "champion_index": "champion_index/index",
    "champion_best_retriever": "champion_best/retriever",
    "champion_best_index": "champion_best/index",
    "champion_best_hybrid": "champion_best/hybrid",
    "champion_run": "champion_run/run",
    "bm25_run": "bm25/run",
    "bm25_negatives": "bm25/negatives",
    "bm25_bm25": "bm25/bm25",
    "negatives": "refreshed_negatives/negatives",
    "teacher": "refreshed_teacher/teacher",
    "challenger": "challenger/retriever",
    "challenger_curves": "challenger/curves",
    "query_tower": "query_tower/retriever",
    "query_tower_index": "query_tower/index",
    "query_tower_curves": "query_tower/curves",
    "challenger_index": "challenger_index/index",
    "challenger_best_retriever": "challenger_best/retriever",
    "challenger_best_index": "challenger_best/index",
    "challenger_best_hybrid": "challenger_best/hybrid",
    "challenger_run": "challenger_run/run",
    "tokens": "tokenize/tokens",
    "importance": "importance/importance",
    "encoder": "refreshed_pretraining/encoder",
    "encoder_curves": "refreshed_pretraining/curves",
}
"""Inputs of the promotion component, with the use and output that each one is."""


ASKED = "asked.json"
"""The file with the parameters, to which the plan adds the recipe."""
NOT_MADE = "not-made.json"
"""The only file of an output that the run did not need: Kubeflow expects every output of a task that is done."""


def run_check(values: Mapping[str, Any]) -> None:
    """Refuses parameters out of range, and repositories, branches and revisions that cannot be read.

    The later tasks read the parameters in its output: as arguments of each they would make the object of the run too
    large.
    """
    from stillhouse.releases.refresh.on_cluster import look

    with watched_task("check"):
        parameters = read_parameters(values)
        show(f"[refresh] {look(parameters)} is in use")
        write_whole_json(Path(values["asked"].path) / ASKED, {"parameters": asdict(parameters)})


def read_asked(folder: Path) -> tuple[Parameters, str]:
    """The parameters and, from the plan's output, the recipe ("" in that of the check)."""
    asked = json.loads((folder / ASKED).read_text(encoding="utf-8"))
    return read_parameters(asked["parameters"]), asked.get("recipe", "")


def read_planned(folder: Path) -> Planned:
    """The rung, the champion and the reason that the plan or the trial of the query tower wrote to its output."""
    from stillhouse.releases.refresh.on_cluster import RECORD, Planned

    known = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    return Planned(Rung(known["rung"]), known["champion"], known["reason"])


def run_plan(values: Mapping[str, Any]) -> str:
    """Runs the plan component and returns the rung."""
    from stillhouse.releases.promotion import REFUSED
    from stillhouse.releases.refresh.on_cluster import plan_refresh, write_summary

    with watched_task("plan"):
        refuse_failed_corpus(Path(values["validation"].path))
        check_pod()
        outputs = {name: Path(values[name].path) for name in TAKEN}
        parameters, _ = read_asked(Path(values["asked"].path))
        recipe = write_recipe(yaml.safe_load(values["recipe"]))
        planned = plan_refresh(parameters, recipe, Path(values["corpus"].path), outputs)
        for name, folder in outputs.items():
            if folder.is_dir():
                values[name].metadata |= lineage(folder)
        refreshed = Path(values["refreshed"].path)
        _show(write_summary(refreshed, planned), values)
        if planned.rung == Rung.NOTHING:
            show(f"{SENTENCE}{REFUSED if planned.refused else planned.rung}: {planned.reason}")
        write_whole_json(refreshed / ASKED, {"parameters": asdict(parameters), "recipe": recipe})
        return str(planned.rung)


def run_release(values: Mapping[str, Any]) -> None:
    """Runs the promotion component. A refusal is not a failure: the old release stays, and the summary says why.

    Its last sentence is for `submit --wait`, as that of the plan is if nothing is promoted.

    Prometheus is notified once the release is out: after the verdict, the push may still fail or another may win.
    """
    from stillhouse.releases.promotion import REFUSED
    from stillhouse.releases.refresh.on_cluster import release_refresh, write_summary

    with watched_task("promote") as watched:
        check_pod()
        folder = Path(values["planned"].path)
        planned, (parameters, recipe) = read_planned(folder), read_asked(folder)
        given = {place: Path(values[port].path) for port, place in MADE.items() if values.get(port) is not None}
        made = {place: path for place, path in given.items() if not (path / NOT_MADE).is_file()}
        outcome = release_refresh(parameters, recipe, planned, made)
        watched.report = Report(outcome.reason, facts={"released": outcome.in_use})
        _show(write_summary(Path(values["refreshed"].path), planned, outcome), values)
        show(f"{SENTENCE}{outcome.kind}: {outcome.reason}")
        accepted = float(outcome.kind != REFUSED)
        values["metrics"].log_metric("released", accepted)
        write_metrics(Path(values["metrics"].path), {"released": accepted})


def _show(page: str, values: Mapping[str, Any]) -> None:
    """Prints a page and writes it to the artifact that Kubeflow shows."""
    show(*f"[refresh] {page}".split("\n"))
    write_whole(Path(values["summary"].path), page)
