"""The results of a comparison that has run: one table and one page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stillhouse.core.artifacts import read_manifest, write_json
from stillhouse.corpus.schemas import SOURCE
from stillhouse.experiments.comparison.files import FILE, as_json
from stillhouse.experiments.comparison.graph import EVALUATION
from stillhouse.experiments.comparison.outcomes import Outcome, read_outcome, read_per_query
from stillhouse.experiments.comparison.page import PAGE, render, variant_examples
from stillhouse.experiments.comparison.plan import Plan
from stillhouse.experiments.comparison.run import Failure
from stillhouse.experiments.comparison.table import Table, make_table
from stillhouse.pipeline.graph import ARTIFACTS, PRETRAINING


def write_comparison(plan: Plan, failures: Mapping[tuple[str, int], Failure], folder: Path, target: Path) -> Table:
    """Reads the results of the jobs in `folder`, writes the table and the page to `target` and returns the table.

    Raises `InputError` if no job has a result.
    """
    outcomes = []
    for job in plan.jobs:
        if failure := failures.get((job.variant, job.seed)):
            outcomes.append(Outcome(variant=job.variant, seed=job.seed, failure=f"{failure.step}: {failure.reason}"))
            continue
        evaluation = folder / job.place / ARTIFACTS / EVALUATION / "evaluation"
        curves = job.output(PRETRAINING, "curves")
        places = {name: job.output(step, "curves") for name, step in plan.sweep.losses.items()}
        losses = {name: folder / place for name, place in places.items() if place}
        outcomes.append(read_outcome(job.variant, job.seed, evaluation, folder / curves if curves else None, losses))
    reference = folder / plan.reference.place / ARTIFACTS / EVALUATION / "evaluation"
    references = {system: splits["test"] for system, splits in read_per_query(reference).items() if "test" in splits}
    synthetic = read_manifest(reference, verify=False).facts["labels"] != SOURCE
    table = make_table(plan.sweep, outcomes, references, plan.reference.configs[EVALUATION], synthetic=synthetic)
    write_json(target / FILE, as_json(table))
    runs = {
        job.variant: folder / job.run
        for job in reversed(plan.jobs)  # so that the first seed stays
        if (job.variant, job.seed) not in failures
    }
    corpus = folder / plan.reference.places["ingest"] / ARTIFACTS / "ingest" / "corpus"
    page = render(table, outcomes, variant_examples(table, corpus, runs))
    (target / PAGE).write_text(page, encoding="utf-8")
    return table
