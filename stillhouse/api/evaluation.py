"""Measures several systems on the test queries."""

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
    """Measure runs on the test queries, test their differences and write `output/evaluation/report.html`.

    `runs` maps system names to runs of `bm25`, `retrieve` or `rerank`, in the order of the report. `curves` maps names
    of trainings to their curves. The result has `figures` (system → measure → mean, from 0 to 1) and the page as
    `report`.

    Raises `InputError` for a corpus without judged test queries.
    """
    inputs = {"corpus": corpus} | named("run", runs) | named("curves", curves or {})
    return run_step(Evaluation, evaluate_step.STEP, "evaluate", inputs, output, settings)
