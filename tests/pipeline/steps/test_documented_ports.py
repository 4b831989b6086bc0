"""The table in docs/steps.md lists every step with its inputs and outputs."""

from __future__ import annotations

import re
from pathlib import Path

from stillhouse.pipeline.steps.registry import steps
from stillhouse.pipeline.steps.spec import Port

PAGE = Path(__file__).resolve().parents[3] / "docs" / "steps.md"
ROW = re.compile(r"^\| `(?P<step>[a-z0-9-]+)` \| (?P<inputs>.*?) \| (?P<outputs>.*?) \|$", re.MULTILINE)


def shown(ports: tuple[Port, ...]) -> str:
    words = (
        f"`{port.name}`{'?' if port.optional else ''}{' (model)' if port.kind == 'model' else ''}"
        f"{' (several)' if port.many else ''}"
        for port in ports
    )
    return ", ".join(words) or "–"


def test_the_table_has_every_step_with_its_ports() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| step | inputs | outputs |\n")[2].partition("\n\n")[0]
    found = {row["step"]: (row["inputs"], row["outputs"]) for row in ROW.finditer(table)}
    assert found == {name: (shown(step.inputs), shown(step.outputs)) for name, step in steps().items()}
