"""The alert rules pass promtool's tests. Rules and dashboard use metrics that the code exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from rendered_overlays import MANIFESTS, program, rule_groups

from stillhouse.core.monitoring.table import LIVE, RESULTS, RUNS, SCHEDULES, SERVICES

TESTS = sorted(Path(__file__).parent.glob("rules_*test.yaml"))
NAME = re.compile(r"\bstillhouse[_:][a-z0-9_:]+")
HISTOGRAM = re.compile(r"_(bucket|count|sum)$")


METRICS = {metric.name: metric for metric in (*LIVE, *RESULTS, *RUNS, *SCHEDULES, *SERVICES)}


def names_in(expression: str) -> set[str]:
    """Return the metrics of an expression. The series of a histogram count as the histogram."""
    names = set(NAME.findall(expression))
    return {name if name in METRICS else HISTOGRAM.sub("", name) for name in names}


def rules() -> list[dict[str, str]]:
    return [rule for group in rule_groups()["groups"] for rule in group["rules"]]


def recorded() -> dict[str, str]:
    return {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}


def expressions() -> dict[str, str]:
    """Every expression of the rules and the dashboard, by its place."""
    found = {f"rule {rule.get('alert') or rule['record']}": rule["expr"] for rule in rules()}
    panels = json.loads((MANIFESTS / "components" / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))[
        "panels"
    ]
    return found | {
        f"panel {panel['title']} {target['refId']}": target["expr"] for panel in panels for target in panel["targets"]
    }


@pytest.fixture
def rule_file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(rule_groups()), encoding="utf-8")
    return path


def test_promtool_accepts_the_rules(rule_file: Path) -> None:
    done = subprocess.run(
        [program("promtool"), "check", "rules", rule_file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "tests", [pytest.param(path, marks=[pytest.mark.long] * ("weeks" in path.stem), id=path.stem) for path in TESTS]
)
def test_every_alert_fires_when_it_must_and_only_then(tests: Path, rule_file: Path) -> None:
    shutil.copy(tests, rule_file.parent)
    command = [program("promtool"), "test", "rules", rule_file.parent / tests.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("where", "expression"), expressions().items(), ids=expressions())
def test_every_name_is_of_the_table(where: str, expression: str) -> None:
    names = names_in(expression)
    assert names, where
    assert names <= METRICS.keys() | recorded().keys(), where


def test_the_page_about_clusters_lists_every_metric_and_alert() -> None:
    page = (MANIFESTS.parent / "docs" / "deploy.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:stillhouse_[a-z_]+|Stillhouse[A-Z]\w+)", page))
    assert named == METRICS.keys() | {rule["alert"] for rule in rules() if "alert" in rule}
