"""Step `evaluate`: measures every system, tests the differences and writes one report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.evaluation.samples import Samples
from stillhouse.pipeline.steps.spec import CORPUS, Paths, Port, Report, Step, named

if TYPE_CHECKING:
    from stillhouse.evaluation.figures import Measured
    from stillhouse.evaluation.measures import Measure


@dataclass(frozen=True, kw_only=True)
class Config(Samples):
    """Settings of `evaluate`."""

    measures: tuple[str, ...] = setting(
        ("RR@10", "nDCG@10", "R@50", "R@100"),
        "a list of measures, named as in ir_measures; Answer@k looks for an answer in the text of a passage",
    )
    examples: int = setting(8, "how many example queries the report shows", minimum=0)
    title: str = setting("Stillhouse evaluation", "title of the report")


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from stillhouse.core.artifacts import foreign_manifest, read_manifest, write_json
    from stillhouse.corpus.store import Corpus
    from stillhouse.evaluation import figures
    from stillhouse.evaluation.measures import parse_measures
    from stillhouse.evaluation.report.curves import read_curves
    from stillhouse.evaluation.report.page import Content, headline_sentence, render
    from stillhouse.evaluation.report.teachers import read_teacher

    measures = parse_measures(config.measures)
    runs = named(inputs, "run")
    corpus = Corpus.open(inputs["corpus"])
    of_dev, of_test = (figures.measure_runs(corpus, runs, split, measures) for split in ("dev", "test"))
    if not of_test:
        raise InputError(
            f"{inputs['corpus']} has no judged query in its test split (no qrels and, for Answer@k, no answers); give "
            "`stillhouse ingest` a source with some, set its test_queries or test_fraction, or ingest with `queries: "
            "pairs`"
        )
    _refuse_unjudged(of_test, measures, inputs["corpus"])
    short = figures.cut_short(of_test, measures, corpus.document_count)
    for measure, systems in short.items():
        shallow = ", ".join(f"{system} ({depth})" for system, depth in systems.items())
        context.log(f"[evaluate] {measure} is deeper than these runs; missing ranks count as not found: {shallow}")
    missing = figures.missing(of_test)
    all_queries = sum(measured.queries for measured in of_test)
    for system, count in missing.items():
        context.log(
            f"[evaluate] {system} has no passage for {count:,} of {all_queries:,} test queries: they count as not found"
        )
    # If there are labelled queries, the figures are theirs, and the synthetic ones are reported separately.
    test, synthetic = of_test[0], (of_test[1] if len(of_test) > 1 else None)
    dev = of_dev[0] if of_dev else figures.Measured("dev", {}, {})
    bounds, compared = figures.intervals(test, config), figures.comparisons(test, config)
    folder, means = outputs["evaluation"], test.means()
    write_json(folder / "metrics.json", means)
    write_json(folder / "dev_metrics.json", dev.means())
    if test.of_passages:
        write_json(folder / "metrics_passages.json", test.passage_means())
    if synthetic:
        write_json(folder / "metrics_synthetic.json", synthetic.means())
    write_json(folder / "intervals.json", bounds)
    write_json(folder / "significance.json", figures.significance_json(compared))
    table = pa.Table.from_pandas(figures.per_query_table(corpus, of_dev + of_test), preserve_index=False)
    pq.write_table(table.replace_schema_metadata(None), folder / "per_query.parquet", compression="zstd")
    found = {name: read_curves(folder) for name, folder in named(inputs, "curves").items()}
    curves = {name: rows for name, rows in found.items() if len(rows)}
    teachers = {name: taught for name, path in named(inputs, "curves").items() if (taught := read_teacher(path))}
    if teachers:
        write_json(folder / "teachers.json", {name: taught.figures() for name, taught in teachers.items()})
    made = {
        system: foreign_manifest(folder) if folder.is_file() else read_manifest(folder, verify=False)
        for system, folder in runs.items()
    }
    content = Content(
        title=config.title,
        corpus=corpus,
        corpus_facts=read_manifest(inputs["corpus"], verify=False).facts,
        dev=dev,
        test=test,
        synthetic=synthetic,
        intervals=bounds,
        comparisons=compared,
        curves=curves,
        examples=config.examples,
        samples=config,
        made=made,
        cut_short=short,
        missing=missing,
        teachers=teachers,
    )
    (folder / "report.html").write_text(render(content), encoding="utf-8")
    values: dict[str, float] = {}
    for measured in of_test:
        prefix = "synthetic/" if measured.synthetic else ""
        values |= {f"{prefix}{s}/{name}": v for s, figure in measured.means().items() for name, v in figure.items()}
    values |= {f"passages/{s}/{name}": v for s, figure in test.passage_means().items() for name, v in figure.items()}
    facts = {
        "labels": test.labels,
        "test_queries": test.queries,
        "dev_labels": dev.labels if dev.queries else "",
        "dev_queries": dev.queries,
        "synthetic_test_queries": sum(measured.queries for measured in of_test if measured.synthetic),
        "systems": list(runs),
        "cut_short": short,
        "missing": missing,
        # How many queries a measure covers, if it does not cover all.
        "judged": {
            measure: int(test.judged(measure).sum()) for measure in test.measures if not test.judged(measure).all()
        },
    }
    if winner := headline_sentence(content):
        context.log(f"[evaluate] {winner}")
    return Report("; ".join(map(_sentence, of_test)), metrics=values, facts=facts, html="report.html")


def _refuse_unjudged(parts: list[Measured], measures: list[Measure], corpus: Path) -> None:
    """Refuses a measure that no test query is judged for."""
    for measure in map(str, measures):
        if not any(measure in part.measures for part in parts):
            raise InputError(
                f"{corpus} has no {'answers' if measure.startswith('Answer@') else 'qrels'} in its test split, so "
                f"{measure} cannot be measured; leave it out of `measures`"
            )


def _sentence(measured: Measured) -> str:
    """The first measure of every system on queries of one kind, which is named if it is synthetic."""
    kind, main = ("SYNTHETIC " if measured.synthetic else ""), measured.measures[0]
    figures = ", ".join(f"{system} {values[main]:.3f}" for system, values in measured.means().items())
    what = " of documents" if measured.of_passages else ""
    return f"{measured.queries} {kind}test queries, {main}{what}: {figures}"


STEP = Step(
    "evaluate",
    "evaluates every system, tests the differences and writes one report",
    Config,
    inputs=(
        CORPUS,
        Port("run", "the run of a system", many=True, file=True),
        Port("curves", "the loss curves of a training stage", optional=True, many=True),
    ),
    outputs=(Port("evaluation", "metrics, significance tests and the report"),),
    run=run,
    version=2,
)
