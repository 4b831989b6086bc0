"""Step `compare-release`: compares a challenger with the champion on the same test queries and decides which one to
release."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.evaluation.release_rule import Rule
from stillhouse.pipeline.steps.spec import CORPUS, Paths, Port, Report, Step

if TYPE_CHECKING:
    from stillhouse.evaluation.verdict import IndexRecalls

INDEXES = ("champion_index", "challenger_index")
"""The inputs that are read if both runs come from one retriever."""


def run(config: Rule, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.core.artifacts import read_manifest, write_json
    from stillhouse.corpus.store import Corpus
    from stillhouse.evaluation.figures import measure_runs
    from stillhouse.evaluation.measures import parse_measures
    from stillhouse.evaluation.verdict import judge

    measures = parse_measures(config.measure)
    if len(measures) != 1:
        raise InputError(f"measure must name exactly one measure, such as RR@10, not {len(measures)}")
    runs = {system: inputs[system] for system in ("champion", "challenger")}
    found = measure_runs(Corpus.open(inputs["corpus"]), runs, "test", measures)
    if not found:
        raise InputError(f"{inputs['corpus']} has no judged test query; a challenger cannot be compared without one")
    test = found[0]  # labelled queries if there are any, else synthetic ones
    name = str(measures[0])
    judged = test.judged(name)
    values = {system: table[name].to_numpy()[judged] for system, table in test.values.items()}
    retrievers = {
        read_manifest(folder, verify=False).inputs.get("retriever", system) for system, folder in runs.items()
    }
    same = len(retrievers) == 1
    recalls = index_recalls(inputs) if same else None
    verdict = judge(values["champion"], values["challenger"], replace(config, measure=name), same=same, recalls=recalls)
    plain = verdict.plain() | {"measure": name, "labels": test.labels}
    write_json(outputs["verdict"] / "verdict.json", plain)
    return Report(
        f"{'accepted' if verdict.accepted else 'REFUSED'}: {verdict.reason}",
        metrics={
            "accepted": float(verdict.accepted),
            "difference": float(plain["difference"]),
            "p": float(plain["randomisation_p"]),
        },
        facts=plain,
    )


def index_recalls(inputs: Paths) -> IndexRecalls | None:
    """The recall of both indexes, compared with exact search, if both are given."""
    from stillhouse.evaluation.verdict import IndexRecalls
    from stillhouse.search.vector_index import DEPTHS, VectorIndex

    depth = min(DEPTHS)
    found = [VectorIndex(inputs[name]).recall(depth) for name in INDEXES if name in inputs]
    return IndexRecalls(depth, *found) if len(found) == len(INDEXES) else None


STEP = Step(
    "compare-release",
    "compares a challenger's run with the champion's and decides which to release",
    Rule,
    inputs=(
        CORPUS,
        Port("champion", "the run of the released retriever", agrees_on=("corpus",)),
        Port("challenger", "the run of the retriever that may replace it", agrees_on=("corpus",)),
        Port(INDEXES[0], "the released index, of any corpus", kind="model", optional=True),
        Port(INDEXES[1], "the index that may replace it", optional=True, agrees_on=("corpus",)),
    ),
    outputs=(Port("verdict", "which one to release, and why"),),
    run=run,
)
