"""The page of `validate`: one self-contained HTML file with the verdict and every check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.html_page import page_template
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.checks import Check, figure
from stillhouse.corpus.expectations import SuiteResult
from stillhouse.corpus.schemas import SPLITS


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
