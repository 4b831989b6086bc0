"""A corpus shared by nodes: a step's result equals, byte for byte, that of one process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_cluster import FakeCluster
from test_two_nodes import ONE_NODE, SETTINGS, LocalNodes, nodes  # noqa: F401

from stillhouse.core.artifacts import digest_files, read_manifest
from stillhouse.core.config import build
from stillhouse.core.errors import InputError
from stillhouse.kubeflow.trainjob.cluster import Cluster
from stillhouse.kubeflow.trainjob.launch import execute_on_nodes
from stillhouse.kubeflow.trainjob.parts import FILE, mark, read_parts
from stillhouse.kubeflow.trainjob.shares import shared_work
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.registry import find_step

PROCESS = subprocess.Popen
SCORED = ("corpus", "negatives", "reranker", "bm25")


@pytest.mark.parametrize(
    "name", ["importance", *(pytest.param(name, marks=pytest.mark.long) for name in ("index", "score-pairs"))]
)
def test_a_corpus_is_shared_with_nodes(
    name: str,
    nodes: LocalNodes,  # noqa: F811
    fake: FakeCluster,
    cluster: Cluster,
    logged: list[str],
    run_step: Callable[..., dict[str, Path]],
    small_corpus: Path,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    if name == "index":
        inputs, settings = {"corpus": small_corpus, "retriever": tiny_model}, {"cache_gib": 0.0}
    elif name == "importance":
        tokens = run_step("tokenize", {"corpus": small_corpus, "tokenizer": tiny_model})["tokens"]
        inputs, settings = {"tokens": tokens}, {}
    else:
        lexical = run_step("bm25", {"corpus": small_corpus}, negatives_depth=6)
        CrossEncoder.start(tiny_model, 32).save(tmp_path / "reranker")
        inputs = {"corpus": small_corpus, "reranker": tmp_path / "reranker", **lexical}
        inputs, settings = {key: inputs[key] for key in SCORED}, {"kind": "best"}
    alone = run_step(name, inputs, into="alone", **settings)
    step = find_step(name)
    config: Any = build(step.config, settings, "test")
    outputs = {port: tmp_path / "together" / port for port in alone}
    with shared_work(step, config, inputs, ONE_NODE) as shares:
        assert len(read_parts(folder_of(fake.only_job()))) == 2, "the pod does one too"
        report = execute(step, config, inputs, outputs, shares=shares)
    [job] = fake.jobs.values()
    assert job["spec"]["trainer"]["numNodes"] == 1
    for port, folder in alone.items():
        assert digest_files(outputs[port]) == digest_files(folder)
        assert read_manifest(outputs[port]).digest == read_manifest(folder).digest
    if name == "index":
        assert report.metrics["encoded"] == 0, "nothing is encoded twice"


def folder_of(job: dict[str, Any]) -> Path:
    return Path(job["spec"]["trainer"]["command"][-2])


@pytest.fixture
def counting(
    run_step: Callable[..., dict[str, Path]], small_corpus: Path, tiny_model: Path
) -> tuple[Any, dict[str, Path]]:
    tokens = run_step("tokenize", {"corpus": small_corpus, "tokenizer": tiny_model})["tokens"]
    return build(find_step("importance").config, {}, "test"), {"tokens": tokens}


def test_a_step_of_one_process_gets_a_node_for_itself(
    counting: tuple[Any, dict[str, Path]],
    nodes: LocalNodes,  # noqa: F811
    cluster: Cluster,
    run_step: Callable[..., dict[str, Path]],
    tmp_path: Path,
) -> None:
    config, inputs = counting
    step, outputs = find_step("importance"), {"importance": tmp_path / "node"}
    with pytest.raises(InputError, match="runs in one process"):
        execute_on_nodes(step, config, inputs, outputs, SETTINGS)
    report = execute_on_nodes(step, config, inputs, outputs, ONE_NODE)
    alone = run_step("importance", inputs, into="alone")["importance"]
    assert read_manifest(outputs["importance"]).digest == read_manifest(alone).digest
    assert report.summary.endswith("on a node of its own") and "distinct n-grams" in report.summary


def test_a_retry_repeats_only_its_own_part(
    counting: tuple[Any, dict[str, Path]], fake: FakeCluster, cluster: Cluster
) -> None:
    """The pod's own shard fails while the nodes succeed: the next try repeats only this shard, and starts no job."""
    config, inputs = counting

    def nodes_are_done() -> None:
        subprocess.run(fake.only_job()["spec"]["trainer"]["command"], check=True)
        fake.set_condition(fake.only_job()["metadata"]["name"], "Complete", "Ended")

    def damaged() -> None:
        """Make the pod's own shard fail: there is no shard 9."""
        path = folder_of(fake.only_job()) / FILE
        path.write_text(path.read_text().replace("--shard=1", "--shard=9"))

    fake.script = [damaged, nodes_are_done]
    shared = partial(shared_work, find_step("importance"), config, inputs, ONE_NODE)
    with pytest.raises(InputError, match="a shard failed on the task's own pod"), shared():
        raise AssertionError("no shares are handed over")
    path = folder_of(fake.only_job()) / FILE
    assert not mark(path.parent, 1).exists()
    path.write_text(path.read_text().replace("--shard=9", "--shard=1"))
    with shared() as shares:
        assert read_manifest(shares).step == "count"
    assert [verb for verb, _, what in fake.calls if what == "trainjobs" and verb != "get"] == ["create"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The started processes, which sleep instead of working."""
    found: list[subprocess.Popen[bytes]] = []

    def popen(words: list[str], **more: Any) -> subprocess.Popen[bytes]:
        found.append(PROCESS([sys.executable, "-c", "import time; time.sleep(600)"], **more))
        return found[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    return found


def test_the_pods_own_part_ends_with_the_pod_when_the_nodes_are_done(
    counting: tuple[Any, dict[str, Path]],
    fake: FakeCluster,
    cluster: Cluster,
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wait = PROCESS.wait

    def asked_to_end(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        monkeypatch.setattr(PROCESS, "wait", wait)
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("the signal ends it")

    monkeypatch.setattr(PROCESS, "wait", asked_to_end)
    fake.script = [
        lambda: None,
        lambda: fake.set_condition(fake.only_job()["metadata"]["name"], "Complete", "JobsCompleted", "done"),
    ]
    config, inputs = counting
    shared = shared_work(find_step("importance"), config, inputs, ONE_NODE)
    try:
        with pytest.raises(SystemExit), shared:
            raise AssertionError("no shares are handed over")
        assert started[0].poll() == -signal.SIGTERM
    finally:
        started[0].kill()
        wait(started[0])
