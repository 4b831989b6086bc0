"""Step `validate`: checks the corpus with Great Expectations and stops the run if it violates a threshold."""

from __future__ import annotations

from stillhouse.core.context import Context
from stillhouse.corpus.settings import Thresholds
from stillhouse.pipeline.steps.spec import CORPUS, Paths, Port, Report, Step

REPORT = "report.html"


def run(config: Thresholds, inputs: Paths, outputs: Paths, context: Context) -> Report:
    """The fact `passed` is false if a check fails; the report is written in any case."""
    from stillhouse.core.artifacts import write_json
    from stillhouse.corpus.checks import WORDS_READ, queries_of_origins, run_checks
    from stillhouse.corpus.store import Corpus
    from stillhouse.corpus.validation import all_checks, checks_json, render_report, run_suites

    corpus = Corpus.open(inputs["corpus"])
    truncation = None
    if config.max_passage_words is None and "encoder" in inputs:
        from stillhouse.models.tokenizer_files import count_truncated

        truncation = count_truncated(corpus, inputs["encoder"])
    checks = run_checks(corpus, config, truncation)
    suites = run_suites(corpus)
    every = all_checks(checks, suites)
    failed = [check for check in every if not check.passed]

    kinds = (corpus.rejected["kind"] + ": " + corpus.rejected["reason"]).value_counts()
    reasons = {str(reason): int(kinds[reason]) for reason in sorted(kinds.index, key=lambda name: (-kinds[name], name))}
    write_json(outputs["validation"] / "checks.json", checks_json(every))
    origins = queries_of_origins(corpus)
    page = render_report(checks, suites, reasons, origins)
    (outputs["validation"] / REPORT).write_text(page, encoding="utf-8")

    values = {check.name: float(check.value) for check in checks}
    for check in failed:
        context.log(f"[validate] failed: {check.sentence()}")
    verdict = f"{len(failed)} of {len(every)} checks failed" if failed else f"all {len(every)} checks passed"
    if values["truncated_fraction"] > 0:
        longer = f"{config.max_passage_words or WORDS_READ} words (max_passage_words), and the model probably reads"
        if truncation:
            longer = f"{truncation.tokens} tokens (passage_length), and the model reads"
        verdict += f"; {values['truncated_fraction']:.1%} of the passages have more than {longer} only their beginning"
    facts = {
        "passed": not failed,
        "checks": len(every),
        "failed": [check.name for check in failed],
        "queries_of_origins": origins,
    }
    return Report(verdict, values | {"failed_checks": float(len(failed))}, facts, html=REPORT)


STEP = Step(
    "validate",
    "checks the corpus with Great Expectations and stops the run if it violates a threshold",
    Thresholds,
    inputs=(CORPUS, Port("encoder", "the model that says which passages it truncates", kind="model", optional=True)),
    outputs=(Port("validation", "the report and the verdict"),),
    run=run,
    version=4,
)
