"""What the last task of the Kubeflow comparison calls: the loop's evaluations become one table and one page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from stillhouse.artifacts import read_manifest, whole_folder, write_whole
from stillhouse.comparison.sweep import make_sweep
from stillhouse.surfaces.compare_plan import evaluation_title


def gather(
    sweep: str,
    evaluations: Sequence[Path],
    curves: Sequence[Path],
    reference: Path,
    comparison: Path,
    page: Path,
) -> dict[str, float]:
    """Writes the files of a comparison to the folder `comparison`, its page to `page`, and returns the means on test.

    `sweep` is the sweep's plain data as JSON with its name under `name`. An evaluation says by its title whose it is,
    and by the digest in its manifest which curves are its pre-training's, since tasks of a loop come in no order.
    Speed and memory are not known here. A run without an evaluation is shown as failed.
    """
    from stillhouse.comparison.files import write_files
    from stillhouse.comparison.outcomes import Outcome, read_outcome, read_per_query
    from stillhouse.comparison.page import PAGE, write_page
    from stillhouse.comparison.table import Settings, make_table
    from stillhouse.corpus.schemas import SOURCE

    content = json.loads(sweep)
    plan = make_sweep(content.pop("name"), content, "the pipeline's sweep")
    manifests = {path: read_manifest(path) for path in evaluations}
    by_title = {manifest.config["title"]: path for path, manifest in manifests.items()}
    by_digest = {read_manifest(path).digest: path for path in curves}
    outcomes = []
    for seed in plan.seeds:
        for variant in plan.variants:
            path = by_title.get(evaluation_title(plan, variant, seed))
            if path is None:
                outcomes.append(Outcome(variant=variant.name, seed=seed, failure="its evaluation was not handed over"))
                continue
            own = by_digest.get(manifests[path].inputs.get("curves/pretraining", ""))
            outcomes.append(read_outcome(variant.name, seed, path, own, None))
    of_reference = read_manifest(reference)
    settings = Settings(*(of_reference.config[name] for name in ("bootstrap_samples", "randomisation_samples", "seed")))
    references = {system: splits["test"] for system, splits in read_per_query(reference).items() if "test" in splits}
    synthetic = of_reference.facts["labels"] != SOURCE
    table = make_table(plan, outcomes, references, settings, synthetic=synthetic)
    with whole_folder(comparison) as staging:
        write_files(table, staging)
        write_page(table, outcomes, staging)
    write_whole(page, (comparison / PAGE).read_bytes().decode())
    return {f"{row.variant.name}/{name}": figure.mean for row in table.done for name, figure in row.figures.items()}
