"""A step whose results change gets another version, or runs would keep what it no longer computes.

`recorded_versions.json` has what every step gives in a tiny run. After a change on purpose, raise the step's `version`
and record anew: `STILLHOUSE_RECORD=yes pytest tests/survival/test_versions.py`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from micro_steps import KILLS, RUN_STEPS, TOO_FAST
from safetensors.numpy import load_file

from stillhouse.core.artifacts import read_manifest

RECORDED = Path(__file__).parent / "recorded_versions.json"
EXACT = {"ingest", "tokenize", "count", "read-negatives"}
"""Steps whose files are the same on every machine; the last digits of floats are a machine's own."""
MEASURED = (
    "bytes",
    "seconds",
    "milliseconds",
    "read",
    "measured",
    "rr10",
    "ndcg",
    "nDCG",
    "ratio",
    "alpha",
    "gain",
    "again",
    "R@",
)
"""Facts that are of the machine or of other files, and rankings, in which a last digit may decide."""

pytestmark = pytest.mark.skipif(KILLS > 1, reason="the recorded run starts from the tests' small model")


def test_results_change_only_with_the_version_of_their_step(calm: tuple[Path, dict[str, float]]) -> None:
    found = {step.name: result(calm[0] / step.name, step.spec) for step in RUN_STEPS}
    if os.environ.get("STILLHOUSE_RECORD"):
        RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    recorded = json.loads(RECORDED.read_text())
    assert found.keys() == recorded.keys()
    changed = []
    for name, now in found.items():
        before = recorded[name]
        assert now["version"] == before["version"], f"{name}: record the results of the new version"
        if now["exact"] != before["exact"]:
            changed.append(f"{name} (step {now['step']}): its files")
        numbers = [{key: value for key, value in of["numbers"].items() if lasts(key)} for of in (now, before)]
        for key in () if name in drifting() else numbers[0].keys() | numbers[1].keys():
            pair = [of.get(key) for of in numbers]
            if None in pair or pair[0] != pytest.approx(pair[1], rel=0.02, abs=2e-3):
                changed.append(f"{name} (step {now['step']}): {key} is {pair[0]}, once {pair[1]}")
    assert not changed, "raise the versions of these steps, and record them anew:\n" + "\n".join(sorted(changed))


def lasts(key: str) -> bool:
    """Whether a number is no measurement, and none that a last digit may decide."""
    return not any(word in key for word in MEASURED)


def drifting() -> set[str]:
    """The steps whose numbers are a machine's own: of a training at whose rate a last digit decides, and after it; and
    after mined negatives, a ranking in which one decides too.
    """
    found, mined = set(TOO_FAST), {step.name for step in RUN_STEPS if step.kind == "mine"}
    for step in RUN_STEPS:
        if any(source.split("/")[0] in found | mined for source in step.inputs.values()):
            found.add(step.name)
    return found


def result(folder: Path, step: Any) -> dict[str, Any]:
    """What a step made, in numbers and, where these are the same everywhere, in a digest."""
    digest, numbers = hashlib.sha256(), dict[str, float]()
    for port in step.outputs:
        place = folder / port.name
        facts = read_manifest(place, verify=False).facts
        numbers |= {f"{port.name}: {key}": value for key, value in flat(facts)}
        for path in sorted(path for path in place.rglob("*") if path.is_file()):
            name = path.relative_to(folder).as_posix()
            if path.suffix == ".safetensors":
                tensors = load_file(path).values()
                numbers[f"{name}: size"] = float(np.mean([np.abs(t.astype(np.float64)).mean() for t in tensors]))
            elif path.name == "curves.csv":
                rows = list(csv.DictReader(path.open()))
                losses = [float(row[key]) for row in rows for key in row if key.endswith("loss") and row[key]]
                numbers[f"{name}: losses"] = float(np.mean(losses)) if losses else 0.0
            if step.name in EXACT and path.suffix in (".parquet", ".npy", ".trec"):
                digest.update(content(path))
    exact = digest.hexdigest() if step.name in EXACT else ""
    return {"step": step.name, "version": step.version, "exact": exact, "numbers": numbers}


def content(path: Path) -> bytes:
    """The content of a file of data, whatever library wrote it."""
    if path.suffix == ".parquet":
        return str(pd.read_parquet(path).to_json(orient="split")).encode()
    return np.load(path).tobytes() if path.suffix == ".npy" else path.read_bytes()


def flat(facts: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """The numbers among facts, by their keys."""
    if isinstance(facts, dict):
        for key, value in facts.items():
            if lasts(key):
                yield from flat(value, f"{name}/{key}" if name else key)
    elif isinstance(facts, (int, float)) and not isinstance(facts, bool):
        yield name, float(facts)
