"""A real Prometheus and a real Pushgateway receive the metrics of real steps, and alerts fire."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml
from ports import free_port

from stillhouse.errors import ValidationFailed

RULES = Path(__file__).resolve().parents[2] / "manifests" / "components" / "monitoring" / "rules.yaml"
PATIENCE = 60.0


@contextmanager
def started(command: list[str], ready: str) -> Iterator[None]:
    """Run a server until the block ends. The block begins when the server is ready."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: answers(ready), f"{command[0]} to be ready")
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def wait_for(found: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        result = found()
        if result:
            return result
        time.sleep(0.2)
    raise AssertionError(f"waited {PATIENCE} s for {what}")


@dataclass(frozen=True)
class Monitoring:
    """The ports on which Prometheus, the gateway and a step listen on loopback."""

    prometheus: int
    gateway: int
    step: int

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current result of an expression."""
        url = f"http://127.0.0.1:{self.prometheus}/api/v1/query?query={quote(expression)}"
        with urlopen(url, timeout=5) as answer:
            return list(json.load(answer)["data"]["result"])

    def firing(self, alert: str) -> list[dict[str, Any]]:
        return self.query(f'ALERTS{{alertname="{alert}",alertstate="firing"}}')


@pytest.fixture(scope="module")
def monitoring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitoring]:
    """Start both servers, with the rules of the manifests and five scrapes a second."""
    for name in ("prometheus", "prometheus-pushgateway"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed; `make test-tools` installs it on Debian")
    folder = tmp_path_factory.mktemp("prometheus")
    places = Monitoring(free_port(), free_port(), free_port())
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))["spec"]
    for group in rules["groups"]:
        group["interval"] = "1s"
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    jobs = [
        {"job_name": "steps", "static_configs": [{"targets": [f"127.0.0.1:{places.step}"]}]},
        {
            "job_name": "pushed",
            "honor_labels": True,
            "static_configs": [{"targets": [f"127.0.0.1:{places.gateway}"]}],
        },
    ]
    settings = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "500ms"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": jobs,
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    listen = f"127.0.0.1:{places.prometheus}"
    prometheus = ["prometheus", f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}"]
    # By default, Debian's gateway keeps its data in a system folder, from one test to the next.
    kept = f"--persistence.file={folder / 'pushed'}"
    gateway = ["prometheus-pushgateway", f"--web.listen-address=127.0.0.1:{places.gateway}", kept]
    with (
        started([*prometheus, f"--web.listen-address={listen}"], f"http://{listen}/-/ready"),
        started(gateway, f"http://127.0.0.1:{places.gateway}/-/ready"),
    ):
        yield places


@pytest.fixture
def asked_for(monitoring: Monitoring, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment of a pod that serves live metrics and pushes its results."""
    monkeypatch.setenv("STILLHOUSE_METRICS_PORT", str(monitoring.step))
    monkeypatch.setenv("STILLHOUSE_PUSHGATEWAY", f"http://127.0.0.1:{monitoring.gateway}")
    monkeypatch.setenv("STILLHOUSE_PIPELINE", "train")
    monkeypatch.setenv("STILLHOUSE_RUN", "run-1")


@pytest.mark.usefixtures("asked_for")
def test_a_training_is_scraped_while_it_runs_and_its_results_stay(
    monitoring: Monitoring,
    small_corpus: Path,
    tiny_model: Path,
    run_step: Callable[..., dict[str, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lexical = run_step("bm25", {"corpus": small_corpus})
    inputs = {"corpus": small_corpus, "encoder": tiny_model, "negatives": lexical["negatives"]}
    monkeypatch.setenv("STILLHOUSE_TASK", "retriever-1")
    run_step("train-retriever", inputs, batch_size=4, epochs=200.0, negatives_per_query=2, eval_steps=100)
    mine = '{pipeline="train",step="retriever-1",run="run-1"}'
    trained = mine.replace("}", ',work="training"}')
    [steps] = monitoring.query(f"max_over_time(stillhouse_training_steps_total{mine}[5m])")
    [examples] = monitoring.query(f"max_over_time(stillhouse_examples_total{trained}[5m])")
    assert 0 < float(steps["value"][1]) <= 600
    assert 0 <= float(examples["value"][1]) - 4 * float(steps["value"][1]) <= 4, "the last batch may just be counted"
    for name in ("training_loss", "heldout_loss", "gradient_norm", "learning_rate", "progress_ratio"):
        assert monitoring.query(f"max_over_time(stillhouse_{name}{mine}[5m])"), name
    [pushed] = wait_for(partial(monitoring.query, f"stillhouse_step_success{mine}"), "the results")
    assert pushed["value"][1] == "1"
    [throughput] = monitoring.query(f"stillhouse_step_examples_per_second{trained}")
    assert throughput["metric"]["work"] == "training"
    [duration] = monitoring.query(f"stillhouse_step_duration_seconds{mine}")
    assert float(throughput["value"][1]) >= 4 * 300 / float(duration["value"][1])
    [alone] = monitoring.query("stillhouse_step_duration_seconds{step='bm25'}")
    assert alone["metric"]["run"] == "run-1", "too short to be scraped, and known all the same"


@pytest.mark.usefixtures("asked_for")
def test_alerts_fire_for_a_failed_corpus_and_a_nan_loss(
    monitoring: Monitoring, small_corpus: Path, tiny_model: Path, run_step: Callable[..., dict[str, Path]]
) -> None:
    assert monitoring.firing("StillhouseValidationFailed") == []
    with pytest.raises(ValidationFailed):
        run_step("validate", {"corpus": small_corpus}, min_passages=1000)
    lexical = run_step("bm25", {"corpus": small_corpus})
    inputs = {"corpus": small_corpus, "encoder": tiny_model, "negatives": lexical["negatives"]}
    with pytest.raises(FloatingPointError):
        run_step("train-retriever", inputs, batch_size=4, max_steps=50, negatives_per_query=2, learning_rate=1e30)
    [failed] = wait_for(lambda: monitoring.firing("StillhouseValidationFailed"), "the alert")
    assert failed["metric"]["step"] == "validate"
    [broken] = wait_for(lambda: monitoring.firing("StillhouseNotFinite"), "the alert")
    assert broken["metric"]["step"] == "train-retriever"
    run_step("validate", {"corpus": small_corpus}, "mended")
    wait_for(lambda: not monitoring.firing("StillhouseValidationFailed"), "the alert to end")


def test_a_killed_step_leaves_the_earlier_results(monitoring: Monitoring, small_corpus: Path, tmp_path: Path) -> None:
    """The results of an earlier run stay when a later run is killed before it pushes anything."""
    code = (
        "import os, signal\n"
        "from stillhouse.monitoring.watch import watch_step\n"
        "with watch_step('mine', print):\n"
        "    if os.environ['STILLHOUSE_RUN'] == 'second': os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    gateway = {"STILLHOUSE_PUSHGATEWAY": f"http://127.0.0.1:{monitoring.gateway}"}
    for run, expected in (("first", 0), ("second", -9)):
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | gateway | {"STILLHOUSE_RUN": run}, check=False
        )
        assert done.returncode == expected
    [left] = wait_for(lambda: monitoring.query('stillhouse_step_success{step="mine"}'), "the results")
    assert left["metric"]["run"] == "first"
