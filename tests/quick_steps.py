"""Steps that take no time, for tests of whole runs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from stillhouse.pipeline.steps import registry
from stillhouse.pipeline.steps.spec import Report


def quicken_steps(patch: pytest.MonkeyPatch, note: Callable[[str, Any], None] = lambda name, config: None) -> None:
    """Replace every step by one that writes a digest of its settings and inputs.

    `note` gets the name and the settings of each step that runs, and may raise.
    """

    def quick(name: str) -> Any:
        def run(config: Any, inputs: Any, outputs: Any, context: Any) -> Report:
            note(name, config)
            read = [(port, (folder / "data.txt").read_text()) for port, folder in sorted(inputs.items())]
            for folder in outputs.values():
                (folder / "data.txt").write_text(hashlib.sha256(repr((config, read)).encode()).hexdigest())
            return Report("done", facts={"passed": True, "passages": 100})

        return run

    for name, step in list(registry.steps().items()):
        patch.setitem(registry.steps(), name, dataclasses.replace(step, run=quick(name)))
