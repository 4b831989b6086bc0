"""The bodies of the Kubeflow refresh's components: their arguments become parameters and folders.

Bad input is reported in one sentence with its remedy, and the task ends without a stack trace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stillhouse.artifacts import write_whole, write_whole_json
from stillhouse.kubernetes.pods.component import watched_task
from stillhouse.kubernetes.pods.pod_preflight import check_pod
from stillhouse.kubernetes.pods.task import refuse_failed_corpus
from stillhouse.releases.lineage import lineage
from stillhouse.releases.refresh.parameters import read_parameters
from stillhouse.releases.refresh.plan import Rung
from stillhouse.steps.execute import write_metrics
from stillhouse.steps.spec import Report
from stillhouse.terminal import show

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
"""The file with the parameters and the recipe, next to the plan."""


def run_check(values: Mapping[str, Any]) -> None:
    """Refuses parameters out of range, and repositories, branches and revisions that cannot be read."""
    from stillhouse.releases.refresh.on_cluster import look

    with watched_task("check"):
        show(f"[refresh] {look(read_parameters(values))} is in use")


def run_plan(values: Mapping[str, Any]) -> str:
    """Runs the plan component and returns the rung."""
    from stillhouse.releases.refresh.on_cluster import plan_refresh, write_summary

    with watched_task("plan"):
        refuse_failed_corpus(Path(values["validation"].path))
        check_pod()
        outputs = {name: Path(values[name].path) for name in TAKEN}
        parameters = read_parameters(values)
        planned = plan_refresh(parameters, values["recipe"], Path(values["corpus"].path), outputs)
        for name, folder in outputs.items():
            if folder.is_dir():
                values[name].metadata |= lineage(folder)
        refreshed = Path(values["refreshed"].path)
        _show(write_summary(refreshed, planned), values)
        # The promotion reads it here; as parameters of three more tasks it would make the object of the run too large.
        write_whole_json(refreshed / ASKED, {"parameters": asdict(parameters), "recipe": values["recipe"]})
        return str(planned.rung)


def run_release(values: Mapping[str, Any]) -> None:
    """Runs the promotion component. A refusal is not a failure: the old release stays, and the summary says why.

    Prometheus is notified once the release is out: after the verdict, the push may still fail or another may win.
    """
    from stillhouse.releases.promotion import REFUSED
    from stillhouse.releases.refresh.on_cluster import RECORD, Planned, release_refresh, write_summary

    with watched_task("promote") as watched:
        check_pod()
        known, asked = (
            json.loads((Path(values["planned"].path) / name).read_text(encoding="utf-8")) for name in (RECORD, ASKED)
        )
        planned = Planned(Rung(known["rung"]), known["champion"], known["reason"])
        made = {place: Path(values[port].path) for port, place in MADE.items() if values.get(port) is not None}
        parameters = read_parameters(asked["parameters"])
        outcome = release_refresh(parameters, asked["recipe"], planned.champion, made)
        watched.report = Report(outcome.reason, facts={"released": outcome.in_use})
        _show(write_summary(Path(values["refreshed"].path), planned, outcome), values)
        accepted = float(outcome.kind != REFUSED)
        values["metrics"].log_metric("released", accepted)
        write_metrics(Path(values["metrics"].path), {"released": accepted})


def _show(page: str, values: Mapping[str, Any]) -> None:
    """Prints a page and writes it to the artifact that Kubeflow shows."""
    show(*f"[refresh] {page}".split("\n"))
    write_whole(Path(values["summary"].path), page)
