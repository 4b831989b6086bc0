"""The page of `validate`: one self-contained HTML file with the verdict, every check and the sections of the suites."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment

from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.checks import Check, figure
from stillhouse.corpus.expectations import SuiteResult
from stillhouse.corpus.schemas import SPLITS

# Great Expectations' fragments repeat element ids and have attributes for scripts that this page does not include.
_SCRIPT_ATTRIBUTES = re.compile(r'\s(?:id|data-[a-z-]+)="[^"]*"')

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Corpus validation: {{ verdict }}</title>
<style>
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 0 auto; padding: 1rem; }
h1 span { padding: 0 .4em; border-radius: .2em; color: #fff; }
.good { background: var(--good); } .bad { background: var(--bad); }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td:first-child, th:first-child { width: 4.5rem; }
.overflow { overflow-x: auto; }
h5 { font-size: 1rem; margin: 1rem 0 0; }
.badge { background: #8883; border-radius: .2em; padding: 0 .3em; font-family: ui-monospace, monospace; }
i.text-success, .pass { color: var(--good); } i.text-success::before { content: "passed"; font-style: normal; }
i.text-danger, .fail { color: var(--bad); } i.text-danger::before { content: "failed"; font-style: normal; }
.text-danger { color: var(--bad); } i { font-style: normal; }
</style>
</head>
<body>
<h1>Corpus validation: <span class="{{ 'good' if passed else 'bad' }}">{{ verdict }}</span></h1>
{% if failed %}<ul>{% for check in failed %}<li class="fail">{{ check.sentence() }}</li>{% endfor %}</ul>{% endif %}
<h2>Checks on every row</h2>
<div class="overflow"><table>
<thead><tr><th>Status</th><th>Check</th><th class="number">Value</th><th class="number">Threshold</th></tr></thead>
<tbody>{% for check in checks %}
<tr><td class="{{ 'pass' if check.passed else 'fail' }}">{{ 'passed' if check.passed else 'failed' }}</td>
<td>{{ check.what }}</td><td class="number">{{ figure(check.value) }}</td>
<td class="number">{{ check.rule }} {{ figure(check.threshold) }}</td></tr>{% endfor %}
</tbody></table></div>
{% if origins %}<h2>Queries by origin</h2>
<table><thead><tr><th>Origin</th>{% for split in splits %}<th class="number">{{ split }}</th>{% endfor %}</tr></thead>
<tbody>{% for origin, counts in origins.items() %}
<tr><td>{{ origin }}</td>{% for split in splits %}
<td class="number">{{ '{:,}'.format(counts[split]) }}</td>{% endfor %}</tr>{% endfor %}
</tbody></table>{% endif %}
{% if reasons %}<h2>Rejected rows</h2>
<table><thead><tr><th>Rows</th><th>Reason</th></tr></thead>
<tbody>{% for reason, count in reasons.items() %}
<tr><td class="number">{{ '{:,}'.format(count) }}</td><td>{{ reason }}</td></tr>{% endfor %}
</tbody></table>
<p><code>rejected.parquet</code> of the corpus lists each of them.</p>{% endif %}
{% for suite in suites %}
<h2>Great Expectations: {{ suite.table }} ({{ '{:,}'.format(suite.rows) }} rows)</h2>
<div class="overflow">{% for section in suite.sections %}{{ bare(section) | safe }}{% endfor %}</div>
{% endfor %}
</body>
</html>
"""


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
    template = Environment(autoescape=True, trim_blocks=True).from_string(_PAGE)
    return template.render(
        verdict="failed" if failed else "passed",
        passed=not failed,
        failed=failed,
        checks=checks,
        suites=suites,
        reasons=reasons,
        origins=origins,
        splits=SPLITS,
        bare=_bare,
        figure=figure,
    )


def all_checks(checks: Sequence[Check], suites: Sequence[SuiteResult]) -> list[Check]:
    """The checks on every row, then the checks of the suites."""
    return [*checks, *(check for suite in suites for check in suite.checks)]


def checks_json(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """`checks.json`: name, value, rule, threshold and outcome of each check."""
    return [
        {
            "name": check.name,
            "what": check.what,
            "value": check.value,
            "rule": check.rule,
            "threshold": check.threshold,
            "passed": check.passed,
        }
        for check in checks
    ]


def _bare(fragment: str) -> str:
    """A fragment without ids, script attributes and blank lines."""
    return "\n".join(line for line in _SCRIPT_ATTRIBUTES.sub("", fragment).splitlines() if line.strip())
