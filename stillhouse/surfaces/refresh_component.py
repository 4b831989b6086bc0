"""What the components of the Kubeflow refresh call: their arguments become settings and folders."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillhouse.refresh.plan import Thresholds
from stillhouse.steps.execute import write_metrics

Planned = namedtuple("Planned", ["rung", "champion"])
RELEASED = {"released_corpus": "corpus"} | {name: name for name in ("retriever", "encoder", "reranker", "generator")}
"""Outputs of the plan's component, and the artifact of the release that each is."""
MADE = {
    "corpus": "ingest/corpus",
    "validation": "validate/validation",
    "champion_index": "champion_index/index",
    "champion_run": "champion_run/run",
    "lexical_run": "lexical/run",
    "lexical_negatives": "lexical/negatives",
    "negatives": "refreshed_negatives/negatives",
    "teacher": "refreshed_teacher/teacher",
    "challenger": "challenger/retriever",
    "challenger_curves": "challenger/curves",
    "challenger_index": "challenger_index/index",
    "challenger_run": "challenger_run/run",
    "tokens": "tokenize/tokens",
    "importance": "importance/importance",
    "encoder": "refreshed_pretraining/encoder",
    "encoder_curves": "refreshed_pretraining/curves",
}
"""Inputs of the release's component, and the use and output that each is."""
RULES = ("measure", "alpha", "most_loss")


def run_plan(values: Mapping[str, Any]) -> Planned:
    """Runs the plan's component and returns its parameters."""
    from stillhouse.refresh.on_cluster import plan_refresh

    outputs = {name: Path(values[port].path) for port, name in RELEASED.items()}
    rung, champion, why = plan_refresh(_asked(values), Path(values["corpus"].path), outputs, again=values["again"])
    summary = Path(values["summary"].path)
    summary.parent.mkdir(parents=True, exist_ok=True)
    summary.write_text(f"**{rung}**, upon {champion}\n\n{why}\n", encoding="utf-8")
    print(f"[refresh] {rung}, upon {champion}: {why}")
    return Planned(rung, champion)


def run_release(values: Mapping[str, Any]) -> None:
    """Runs the release's component. A refusal is no failure: the old release stays, and the summary says why."""
    from stillhouse.refresh.on_cluster import release_refresh, say

    made = {place: Path(values[port].path) for port, place in MADE.items() if values.get(port) is not None}
    outcome = release_refresh(_asked(values), values["champion"], made)
    accepted = say(outcome, Path(values["summary"].path))
    print(f"[refresh] {outcome.kind}: {outcome.reason}")
    values["metrics"].log_metric("released", accepted)
    write_metrics(Path(values["metrics"].path), {"released": accepted})


def _asked(values: Mapping[str, Any]) -> Any:
    from stillhouse.config import field_types
    from stillhouse.refresh.on_cluster import Asked

    return Asked(
        releases=values["releases"],
        branch=values["branch"],
        recipe=values["recipe"],
        thresholds={name: values[name] for name in field_types(Thresholds)},
        judge={name: values[name] for name in RULES},
    )
