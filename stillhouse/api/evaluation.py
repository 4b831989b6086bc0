"""Figures of several systems on the test queries."""

from __future__ import annotations

from collections.abc import Mapping

from stillhouse.api.results import Evaluation, Folder
from stillhouse.api.step_function import Setting, named, run_step, settings_of
from stillhouse.steps import evaluate as evaluate_step


@settings_of(evaluate_step.STEP)
def evaluate(
    corpus: Folder,
    runs: Mapping[str, Folder],
    output: Folder,
    *,
    curves: Mapping[str, Folder] | None = None,
    **settings: Setting,
) -> Evaluation:
    """Measures runs on the test queries, tests their differences and writes `output/evaluation/report.html`.

    `runs` maps the name of a system to its run, of `bm25`, `retrieve` or `rerank`; the order is that of the report.
    `curves` are those of trainings, by name. The result has `figures` (system → measure → mean, from 0 to 1) and the
    page as `report`.

    Raises `InputError` for a corpus without judged test queries.
    """
    inputs = {"corpus": corpus} | named("run", runs) | named("curves", curves or {})
    return run_step(Evaluation, evaluate_step.STEP, "evaluate", inputs, output, settings)
