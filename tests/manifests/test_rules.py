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

from stillhouse.monitoring.table import COMMON, LIVE, RESULTS, RUNS, SCHEDULES, SERVICES

TESTS = sorted(Path(__file__).parent.glob("rules_*test.yaml"))
SCRAPED = {"job", "instance", "namespace", "pod"}
"""Labels that Prometheus adds."""
NAME = re.compile(r"\bstillhouse[_:][a-z0-9_:]+")
HISTOGRAM = re.compile(r"_(bucket|count|sum)$")
WORDS = re.compile(r"\b(?:by|on|without|ignoring) \(([^)]*)\)")
SELECTOR = re.compile(r"(\bstillhouse[_:][a-z0-9_:]+)\{([^}]*)\}")


METRICS = {metric.name: metric for metric in (*LIVE, *RESULTS, *RUNS, *SCHEDULES, *SERVICES)}
OWN_LABELS = {
    **{metric.name: COMMON for metric in (*LIVE, *RESULTS)},
    **{metric.name: ("pipeline", "run") for metric in RUNS},
    **{metric.name: ("schedule",) for metric in SCHEDULES},
}
"""The labels that every series of a metric has, beside those of its row."""


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


@pytest.mark.parametrize("tests", TESTS, ids=lambda path: path.stem)
def test_every_alert_fires_when_it_must_and_only_then(tests: Path, rule_file: Path) -> None:
    shutil.copy(tests, rule_file.parent)
    command = [program("promtool"), "test", "rules", rule_file.parent / tests.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_firing() -> None:
    tests = [test for path in TESTS for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]]
    fired = {case["alertname"] for test in tests for case in test.get("alert_rule_test", []) if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules() if "alert" in rule}


def test_alerts_say_what_is_wrong_and_what_to_do() -> None:
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"].keys() == {"severity"}
            assert rule["annotations"].keys() == {"summary", "remedy"}


@pytest.mark.parametrize(("where", "expression"), expressions().items(), ids=expressions())
def test_every_name_is_of_the_table(where: str, expression: str) -> None:
    names = names_in(expression)
    assert names, where
    assert names <= METRICS.keys() | recorded().keys(), where


@pytest.mark.parametrize(("where", "expression"), expressions().items(), ids=expressions())
def test_every_label_is_one_of_the_metric(where: str, expression: str) -> None:
    made = {"stillhouse:release_examples_per_second": {"pipeline", "step", "work"}}
    made["stillhouse:examples:rate10m"] = made["stillhouse:release_examples_per_second"] | {"run"}
    made["stillhouse:schedule_behind_seconds"] = {"schedule"}
    made["stillhouse:serve_p99_seconds"] = {"namespace", "endpoint"}
    made["stillhouse:serve_failed_ratio"] = {"namespace"}
    known = {name: {*OWN_LABELS.get(name, ()), *metric.labels} for name, metric in METRICS.items()} | made
    buckets = {f"{name}_bucket": {*known[name], "le"} for name, one in METRICS.items() if one.kind == "histogram"}
    known |= buckets
    for name, selectors in SELECTOR.findall(expression):
        used = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", selectors))
        assert used <= known[name] | SCRAPED, f"{where}: {name} has no labels {used - known[name]}"
    # No table lists the labels of metrics from elsewhere, such as those of kube-state-metrics.
    own = re.sub(r"\w+ by \([^)]*\) \(kube_[^)]*\)", "", expression)
    joined = {word.strip() for words in WORDS.findall(own) for word in words.split(",")} - {""}
    there = set().union(*(known[name] for name in NAME.findall(expression)))
    assert joined <= there | SCRAPED, f"{where}: nothing has the labels {joined - there}"


def test_the_page_about_clusters_lists_every_metric_and_alert() -> None:
    page = (MANIFESTS.parent / "docs" / "deploy.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].split(" by ")[0].strip(" `") for line in page.splitlines() if line.startswith("| ")}
    assert METRICS.keys() <= rows
    assert {rule["alert"] for rule in rules() if "alert" in rule} <= rows
