"""A fixture of the tests of whole runs: steps that take no time."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import pytest

from stillhouse.pipeline.steps import registry
from stillhouse.pipeline.steps.spec import Report


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces every step by one that writes a digest of its settings and inputs."""

    def run(config: Any, inputs: Any, outputs: Any, context: Any) -> Report:
        read = [(folder / "data.txt").read_text() for _, folder in sorted(inputs.items())]
        for folder in outputs.values():
            (folder / "data.txt").write_text(hashlib.sha256(repr((config, read)).encode()).hexdigest())
        return Report("done", facts={"passed": True, "passages": 100})

    for name, step in list(registry.steps().items()):
        monkeypatch.setitem(registry.steps(), name, dataclasses.replace(step, run=run))
