"""Step `validate`: checks the corpus with Great Expectations and stops the run if it violates a threshold."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.pipeline.steps.spec import Paths, Port, Report, Step

REPORT = "report.html"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `validate`: the thresholds."""

    max_rejected_fraction: float = setting(
        0.01, "the largest share of rejected rows, overall and of each kind (links apart)", minimum=0, maximum=1
    )
    max_rejected_link_fraction: float = setting(1.0, "the largest share of rejected links", minimum=0, maximum=1)
    min_passages: int = setting(1, "at least this many passages", minimum=0)
    min_train_queries: int = setting(0, "at least this many train queries", minimum=0)
    min_dev_queries: int = setting(0, "at least this many dev queries", minimum=0)
    min_test_queries: int = setting(0, "at least this many test queries", minimum=0)
    max_passage_words: int | None = setting(
        None,
        "a passage of more words counts as truncated by the model; null = what the given encoder reads, else 110. 110 "
        "English words are about 144 tokens. White space separates words, and a character of a script without spaces "
        "(Chinese, Japanese, Thai) is one",
        minimum=1,
    )
    max_truncated_fraction: float = setting(
        1.0, "the largest share of truncated passages; 1 = only warn", minimum=0, maximum=1
    )
    max_duplicate_text_fraction: float = setting(
        0.1, "the largest share of passages that repeat another's title and text", minimum=0, maximum=1
    )


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    """The fact `passed` is false if a check fails; the report is written in any case."""
    from stillhouse.core.artifacts import write_json
    from stillhouse.corpus.checks import WORDS_READ, Thresholds, queries_of_origins, run_checks
    from stillhouse.corpus.expectations import run_suites
    from stillhouse.corpus.store import Corpus
    from stillhouse.corpus.validation_report import all_checks, checks_json, render_report

    corpus = Corpus.open(inputs["corpus"])
    truncation = None
    if config.max_passage_words is None and "encoder" in inputs:
        from stillhouse.models.tokenizer_files import count_truncated

        truncation = count_truncated(corpus, inputs["encoder"])
    checks = run_checks(corpus, Thresholds(**asdict(config)), truncation)
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
        longer = (
            f"{truncation.tokens} tokens (passage_length), and the model reads only their beginning"
            if truncation
            else f"{config.max_passage_words or WORDS_READ} words (max_passage_words), and the model probably reads "
            "only their beginning"
        )
        verdict += f"; {values['truncated_fraction']:.1%} of the passages have more than {longer}"
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
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("encoder", "the model that says which passages it truncates", kind="model", optional=True),
    ),
    outputs=(Port("validation", "the report and the verdict"),),
    run=run,
)
