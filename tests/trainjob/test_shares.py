"""A corpus that nodes share: what a step makes of it is, byte for byte, what one process makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_two_nodes import SETTINGS, LocalNodes, nodes  # noqa: F401

from stillhouse.artifacts import digest_files, read_manifest
from stillhouse.config import build
from stillhouse.steps.execute import execute
from stillhouse.steps.registry import find_step
from stillhouse.trainjob.cluster import Cluster
from stillhouse.trainjob.parts import Part, Parts
from stillhouse.trainjob.shares import shared_work


@pytest.mark.parametrize("name", ["index", "importance"])
def test_nodes_share_a_corpus(
    name: str,
    nodes: LocalNodes,  # noqa: F811
    cluster: Cluster,
    logged: list[str],
    run_step: Callable[..., dict[str, Path]],
    small_corpus: Path,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    if name == "index":
        inputs, settings = {"corpus": small_corpus, "retriever": tiny_model}, {"cache_gib": 0.0}
    else:
        tokens = run_step("tokenize", {"corpus": small_corpus, "tokenizer": tiny_model})["tokens"]
        inputs, settings = {"tokens": tokens}, {}
    alone = run_step(name, inputs, into="alone", **settings)
    step = find_step(name)
    config: Any = build(step.config, settings, "test")
    outputs = {port: tmp_path / "together" / port for port in alone}
    with shared_work(step, config, inputs, replace(SETTINGS, nodes=2), cluster) as shares:
        report = execute(step, config, inputs, outputs, shares=shares)
    for port, folder in alone.items():
        assert digest_files(outputs[port]) == digest_files(folder)
        assert read_manifest(outputs[port]).digest == read_manifest(folder).digest
    if name == "index":
        assert report.metrics["encoded"] == 0, "nothing is encoded twice"


def test_what_is_marked_as_done_is_not_done_again(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "job")
    assert not parts.done()
    parts.write([Part(("encode", "--shard=1"), parallel=True), Part(("a",), module="m")])
    assert parts.read() == [Part(("encode", "--shard=1"), parallel=True), Part(("a",), module="m")]
    parts.mark(1).touch()
    assert not parts.done() and parts.lost()
    parts.clear()
    parts.mark(2).touch()
    assert parts.done() and not parts.lost()
