"""Step `evaluate`: measures every system, tests the differences and writes one report."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.evaluation.systems import SYSTEMS, TRAININGS
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `evaluate`."""

    measures: str = setting("RR@10 nDCG@10 R@50 R@100", "measures by the names of ir_measures, spaces between")
    bootstrap_samples: int = setting(2000, "bootstrap samples behind every interval", minimum=100)
    randomisation_samples: int = setting(10000, "random sign flips behind every randomisation test", minimum=100)
    examples: int = setting(8, "how many example queries the report shows", minimum=0)
    title: str = setting("Stillhouse evaluation", "title of the report")
    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from stillhouse.artifacts import read_manifest, write_json
    from stillhouse.corpus.store import Corpus
    from stillhouse.errors import InputError
    from stillhouse.evaluation import figures
    from stillhouse.evaluation.measures import parse_measures
    from stillhouse.evaluation.report.curves import read_curves
    from stillhouse.evaluation.report.page import Content, render

    measures = parse_measures(config.measures)
    runs = {system: inputs[system] for system in SYSTEMS if system in inputs}
    if not runs:
        raise InputError("step 'evaluate' needs at least one run; give --bm25, --zero-shot, --distilled or another")
    corpus = Corpus.open(inputs["corpus"])
    dev, test = (figures.measure_runs(corpus, runs, split, measures) for split in ("dev", "test"))
    if not test.queries:
        raise InputError(
            f"{inputs['corpus']} has no judged query in its test split; give `stillhouse ingest` a source with one"
        )
    bounds = figures.intervals(test, config.bootstrap_samples, config.seed)
    compared = figures.comparisons(
        test,
        bootstrap_samples=config.bootstrap_samples,
        randomisation_samples=config.randomisation_samples,
        seed=config.seed,
    )
    folder, means = outputs["evaluation"], test.means()
    write_json(folder / "metrics.json", means)
    write_json(folder / "dev_metrics.json", dev.means())
    write_json(folder / "intervals.json", bounds)
    write_json(folder / "significance.json", figures.significance_json(compared))
    table = pa.Table.from_pandas(figures.per_query_table(dev, test), preserve_index=False)
    pq.write_table(table.replace_schema_metadata(None), folder / "per_query.parquet", compression="zstd")
    curves = {name: read_curves(inputs[f"{name}_curves"]) for name in TRAININGS if f"{name}_curves" in inputs}
    content = Content(
        title=config.title,
        corpus=corpus,
        corpus_facts=read_manifest(inputs["corpus"], verify=False).facts,
        dev=dev,
        test=test,
        intervals=bounds,
        comparisons=compared,
        curves=curves,
        examples=config.examples,
        bootstrap_samples=config.bootstrap_samples,
        randomisation_samples=config.randomisation_samples,
    )
    (folder / "report.html").write_text(render(content), encoding="utf-8")
    main = str(measures[0])
    return Report(
        f"{test.queries} test queries, {main}: "
        + ", ".join(f"{system} {values[main]:.3f}" for system, values in means.items()),
        metrics={f"{system}/{name}": value for system, values in means.items() for name, value in values.items()},
        facts={"test_queries": test.queries, "dev_queries": dev.queries, "systems": list(runs)},
        html="report.html",
    )


STEP = Step(
    "evaluate",
    "measures every system, tests the differences and writes one report",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        *(Port(name, f"run of {text}", optional=True) for name, text in SYSTEMS.items()),
        *(Port(f"{name}_curves", f"loss curves: {text}", optional=True) for name, text in TRAININGS.items()),
    ),
    outputs=(Port("evaluation", "metrics, significance and the report"),),
    run=run,
)
