"""The validation of a corpus by Great Expectations, and its page: one self-contained HTML file with every check.

Great Expectations holds a whole frame and several copies in memory, so it checks at most `SAMPLED_ROWS` rows of a
table, spread evenly over it; `corpus.checks` checks every row.
"""

import contextlib
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from stillhouse.core.arrays import evenly_spaced
from stillhouse.core.monitoring.activity import doing
from stillhouse.core.pages import page_template
from stillhouse.corpus.checks import AT_MOST, Check, figure
from stillhouse.corpus.schemas import SCHEMAS, SPLITS
from stillhouse.corpus.store import Corpus

SAMPLED_ROWS = 200_000

# Great Expectations reads this when it is imported; "False" turns its telemetry off.
TELEMETRY = "GX_ANALYTICS_ENABLED"


@dataclass(frozen=True)
class SuiteResult:
    """The outcome of one suite."""

    table: str
    rows: int
    checks: tuple[Check, ...]


@doing("validating with Great Expectations")
def run_suites(corpus: Corpus) -> list[SuiteResult]:
    """Validates passages, queries and qrels. In a table without rows, only the columns are checked."""
    os.environ.setdefault(TELEMETRY, "False")
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    source = context.data_sources.add_pandas("corpus")
    results = []
    for table in ("passages", "queries", "qrels"):
        sample = _sample(corpus, table)
        expectations = _expectations(table) if len(sample) else _expectations(table)[:1]
        batch = source.add_dataframe_asset(table).add_batch_definition_whole_dataframe("rows")
        suite = gx.ExpectationSuite(name=table, expectations=expectations)
        with contextlib.redirect_stderr(io.StringIO()):  # the only way to turn its progress bars off
            outcome = batch.get_batch({"dataframe": sample}).validate(suite)
        checks = tuple(_as_check(table, result) for result in outcome.results)
        results.append(SuiteResult(table, len(sample), checks))
    return results


def _sample(corpus: Corpus, table: str) -> pd.DataFrame:
    """At most `SAMPLED_ROWS` rows of a table, evenly spread."""
    count = corpus.passage_count if table == "passages" else len(getattr(corpus, table))
    rows = evenly_spaced(count, SAMPLED_ROWS)
    if table == "passages":
        return corpus.passages_at(rows, *SCHEMAS["passages"].names)
    return getattr(corpus, table).iloc[rows].reset_index(drop=True)


def _expectations(table: str) -> Sequence[Any]:
    """The suite of a table; the first expectation checks its columns."""
    import great_expectations.expectations as gxe

    columns = list(SCHEMAS[table].names)
    splits = gxe.ExpectColumnValuesToBeInSet(column="split", value_set=list(SPLITS))
    not_null = [gxe.ExpectColumnValuesToNotBeNull(column=column) for column in columns]
    own: Mapping[str, Sequence[Any]] = {
        "passages": [
            gxe.ExpectColumnValuesToBeUnique(column="passage_id"),
            gxe.ExpectColumnValuesToMatchRegex(column="passage_id", regex=r"^\S+$"),
            gxe.ExpectColumnValuesToMatchRegex(column="text", regex=r"\S"),
            gxe.ExpectColumnValuesToBeBetween(column="position", min_value=0),
        ],
        "queries": [
            gxe.ExpectColumnValuesToBeUnique(column="query_id"),
            gxe.ExpectColumnValuesToMatchRegex(column="query_id", regex=r"^\S+$"),
            gxe.ExpectColumnValuesToMatchRegex(column="text", regex=r"\S"),
            splits,
        ],
        "qrels": [
            gxe.ExpectCompoundColumnsToBeUnique(column_list=["query_id", "passage_id"]),
            gxe.ExpectColumnValuesToBeBetween(column="relevance", min_value=0),
            splits,
        ],
    }
    return [gxe.ExpectTableColumnsToMatchOrderedList(column_list=columns), *not_null, *own[table]]


def _as_check(table: str, result: Any) -> Check:
    """An expectation as a check: the number of rows that break it, none allowed."""
    config = result.expectation_config
    columns = config.kwargs.get("column") or "+".join(config.kwargs.get("column_list", []))
    failed = result.result.get("unexpected_count") or int(not result.success)
    name = f"{table}.{columns}.{config.type}"
    return Check(name, f"the number of rows of {table} that break {config.type} ({columns})", failed, AT_MOST, 0)


@doing("writing the report")
def render_report(
    checks: Sequence[Check],
    suites: Sequence[SuiteResult],
    reasons: Mapping[str, int],
    origins: Mapping[str, Mapping[str, int]],
) -> str:
    """The page as text. It loads nothing and contains no time or path.

    `reasons` counts rejected rows, and `origins` comes from `checks.queries_of_origins`.
    """
    failed = [check for check in all_checks(checks, suites) if not check.passed]
    return page_template(Path(__file__).with_suffix(".html")).render(
        verdict="failed" if failed else "passed",
        passed=not failed,
        failed=failed,
        checks=checks,
        suites=suites,
        reasons=reasons,
        origins=origins,
        splits=SPLITS,
        figure=figure,
    )


def all_checks(checks: Sequence[Check], suites: Sequence[SuiteResult]) -> list[Check]:
    """The checks on every row, then the checks of the suites."""
    return [*checks, *(check for suite in suites for check in suite.checks)]


def checks_json(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """`checks.json`: name, value, rule, threshold and outcome of each check."""
    names = ("name", "what", "value", "rule", "threshold", "passed")
    return [{name: getattr(check, name) for name in names} for check in checks]
