"""The task of the Kubeflow comparison: runs every variant with every seed, then writes one table and one page.

A failed run is shown with its reason, and the others continue. Finished runs stay on the work volume until all are
done.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.artifacts import read_manifest, whole_folder, write_whole, write_whole_json
from stillhouse.context import say
from stillhouse.errors import InputError, is_full_disk
from stillhouse.experiments.comparison.graph import EVALUATION
from stillhouse.experiments.comparison.plan import evaluation_title, run_name
from stillhouse.experiments.comparison.sweep import make_sweep
from stillhouse.kubernetes.pods.component import one_line_errors
from stillhouse.kubernetes.pods.pod_preflight import check_pod
from stillhouse.kubernetes.pods.task import METRICS, RUN, Stage, Work, folder_of, port_name, sources_of, works_of
from stillhouse.kubernetes.trainjob.parts import Part
from stillhouse.kubernetes.trainjob.settings import NodeSettings, read_node_settings
from stillhouse.lock import only_process
from stillhouse.steps.execute import write_metrics
from stillhouse.workflow.graph import PRETRAINING
from stillhouse.workflow.timed_step import reason
from stillhouse.workflow.uses import used

NAME = "comparison"
LOSSES = "losses"
"""The curves of an item's loss figures, if it has any, by figure, each as `use/output`."""
HANDED = "handed.json"
"""The outcome of a run: why it failed, or an empty reason."""


@dataclass(frozen=True)
class Runs:
    """The runs of a comparison. `described` has the uses per group of variants, `items` what differs between runs.

    `given` maps the outputs of other tasks that any of the groups reads to their folders.
    """

    described: Mapping[str, Mapping[str, Mapping[str, Any]]]
    items: Sequence[Mapping[str, Any]]
    given: Mapping[str, Path]
    root: Path

    def name(self, number: int) -> str:
        return str(self.items[number]["run"])

    def folder(self, number: int) -> Path:
        return self.root / f"{number + 1:04}"

    def works(self, number: int) -> list[Work]:
        return works_of(self.described[self.items[number]["group"]], self.items[number])

    def losses(self, number: int) -> dict[str, Path]:
        """The folders of curves with a run's loss figures: its own, or those of a training that the runs share."""
        own = self.described[self.items[number]["group"]]
        return {
            name: self.folder(number) / source if used(source) in own else self.given[source]
            for name, source in self.items[number].get(LOSSES, {}).items()
        }

    def failure(self, number: int) -> str | None:
        """Why a run failed, "" if it succeeded, None if it is not done."""
        path = self.folder(number) / HANDED
        return str(json.loads(path.read_text(encoding="utf-8"))["failure"]) if path.is_file() else None

    def do(self, number: int) -> None:
        """Does a run unless an earlier try has. Raises the error of a full disk, and records any other failure."""
        if self.failure(number) is not None:
            return
        failure = ""
        works, folder = self.works(number), self.folder(number)
        # A use may be shared in one group, and its own in another.
        given = {source: self.given[source] for source in sources_of(works)}
        folder.mkdir(parents=True, exist_ok=True)
        try:
            Stage(self.name(number), folder, works, given, {}).run()
        except Exception as error:
            if is_full_disk(error):
                raise
            failure = reason(error)
            say(f"[{NAME}] {self.name(number)} failed: {failure}")
        write_whole_json(folder / HANDED, {"failure": failure})

    def write(self) -> None:
        """Writes what a node needs to do a run; inputs must be on the shared volume."""
        given = {source: str(path) for source, path in self.given.items()}
        write_whole_json(
            self.root / "runs.json", {"described": self.described, "items": list(self.items), "given": given}
        )

    @classmethod
    def read(cls, root: Path) -> Runs:
        content = json.loads((root / "runs.json").read_text(encoding="utf-8"))
        given = {source: Path(path) for source, path in content["given"].items()}
        return cls(content["described"], content["items"], given, root)


def run_variants(values: Mapping[str, Any]) -> None:
    """Runs the component: all runs, here or on the pod's nodes, then table and page."""
    with one_line_errors():
        check_pod()
        described, items = json.loads(values["uses"]), json.loads(values["items"])
        groups = [works_of(uses, {}) for uses in described.values()]
        read = {source for works in groups for source in sources_of(works)}
        given = {source: Path(values[port_name(source)].path) for source in read}
        every = [work for works in groups for work in works]
        root = folder_of(NAME, every, given, f"{values[RUN]} {values['items']}").absolute()
        curves = {source for item in items for source in item.get(LOSSES, {}).values() if port_name(source) in values}
        given |= {source: Path(values[port_name(source)].path) for source in curves}
        with only_process(root, wait=say):
            root.mkdir(parents=True, exist_ok=True)
            runs = Runs(described, items, given, root)
            nodes = read_node_settings(os.environ, NAME, sys.argv)
            if nodes:
                _by_nodes(runs, nodes)
            for number in range(len(items)):
                runs.do(number)
            failures = {runs.name(number): runs.failure(number) or "" for number in range(len(items))}
            done = [runs.folder(number) for number in range(len(items)) if not failures[runs.name(number)]]
            if not done:
                raise InputError(f"no run of the comparison succeeded: {next(iter(failures.values()))}")
            figures = gather(
                values["sweep"],
                [folder / EVALUATION / "evaluation" for folder in done],
                [path for folder in done if (path := folder / PRETRAINING / "curves").is_dir()],
                Path(values["reference"].path),
                Path(values["comparison"].path),
                Path(values["html"].path),
                failures,
                {runs.name(number): runs.losses(number) for number in range(len(items))},
            )
            for name, value in figures.items():
                values[METRICS].log_metric(name, value)
            write_metrics(Path(values[METRICS].path), figures)
            shutil.rmtree(root, ignore_errors=True)


def _by_nodes(runs: Runs, nodes: NodeSettings) -> None:
    """Does the runs on nodes, each of which does one at a time."""
    from stillhouse.kubernetes.trainjob.exchange import put_inputs
    from stillhouse.kubernetes.trainjob.shares import run_parts

    there = put_inputs(runs.root, {port_name(source): path for source, path in runs.given.items()})
    given = {source: there[port_name(source)] for source in runs.given}
    Runs(runs.described, runs.items, given, runs.root).write()
    module = "stillhouse.kubernetes.pods.compare"
    parts = [Part((str(runs.root), str(number)), module=module) for number in range(len(runs.items))]
    run_parts(NAME, runs.root.name, parts, nodes)


def gather(
    sweep: str,
    evaluations: Sequence[Path],
    curves: Sequence[Path],
    reference: Path,
    comparison: Path,
    page: Path,
    failures: Mapping[str, str] | None = None,
    losses: Mapping[str, Mapping[str, Path]] | None = None,
) -> dict[str, float]:
    """Writes the files of a comparison to the folder `comparison`, its page to `page`, and returns the means on test.

    `sweep` is the sweep's plain data as JSON with its name under `name`. The title of an evaluation identifies its
    run, and the digest in its manifest identifies the curves of its pre-training. Speed and memory are unknown here. A
    run without an evaluation is shown as failed, with its reason in `failures`. `losses` has the curves of the loss
    figures, by run and figure.
    """
    from stillhouse.corpus.schemas import SOURCE
    from stillhouse.experiments.comparison.files import write_files
    from stillhouse.experiments.comparison.outcomes import Outcome, read_outcome, read_per_query
    from stillhouse.experiments.comparison.page import PAGE, write_page
    from stillhouse.experiments.comparison.table import Settings, make_table

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
                why = (failures or {}).get(run_name(variant.name, seed)) or "its evaluation is missing"
                outcomes.append(Outcome(variant=variant.name, seed=seed, failure=why))
                continue
            own = by_digest.get(manifests[path].inputs.get("curves/pretraining", ""))
            of_losses = (losses or {}).get(run_name(variant.name, seed))
            outcomes.append(read_outcome(variant.name, seed, path, own, None, of_losses))
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


def main(argv: Sequence[str]) -> int:
    """One run on a node: the comparison's folder, and the run's number."""
    root, number = argv
    with one_line_errors():
        Runs.read(Path(root)).do(int(number))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
