"""How long uses of steps took on this machine, and the time left of a run estimated from that.

For uses that never ran here, the time is computed from their arithmetic (`first_run_times`), with the scale of corpus
and starting model once these exist, and until then with that of a first look at the source.

Seconds are kept in the work area, never in an artifact: `times/<step>.json` maps a use to the digest of its settings to
[seconds, passages of the corpus]. They are a convenience: a file that is damaged, foreign or not writable affects only
the estimates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stillhouse.artifacts import digest_json, read_manifest
from stillhouse.context import device, work_root
from stillhouse.errors import InputError
from stillhouse.monitoring.duration import in_words
from stillhouse.own_files import own_file
from stillhouse.workflow.first_run_times import Scale, on_processor, predicted_seconds, scale_of
from stillhouse.workflow.graph import CORPUS, START, Use

Times = dict[str, dict[str, list[float]]]
Seen = tuple[Scale, bool]
"""The scale of a run by a first look at its source, and whether that saw the whole source."""
KEPT = 10
"""For how many settings of a use the seconds are kept."""


def note_seconds(use: Use, config: Any, root: Path, seconds: float) -> None:
    """Records the seconds of a use, for later runs."""
    times = _read(use.step_name)
    known = times.setdefault(use.name, {})
    known.pop(_digest(config), None)
    known[_digest(config)] = [round(seconds, 1), _passages(root)]
    times[use.name] = dict(list(known.items())[-KEPT:])
    with suppress(OSError, InputError), own_file(_path(use.step_name)) as path:
        path.write_text(json.dumps(times, indent=2) + "\n", encoding="utf-8")  # in order, the newest last


def expected_seconds(use: Use, config: Any, root: Path) -> float | None:
    """The seconds that a use, or else another use of its step, took with these settings; None if unknown.

    They are scaled with the corpus, except for a training whose number of steps is a setting.
    """
    times, digest = _read(use.step_name), _digest(config)
    for known in (times.get(use.name, {}), *times.values()):
        if digest in known:
            seconds, passages = known[digest]
            grows = use.inputs and not getattr(config, "max_steps", 0)
            return seconds * _passages(root) / passages if grows and passages and _passages(root) else seconds
    return None


def estimate(
    uses: Iterable[Use],
    configs: Mapping[str, Any],
    root: Path,
    left: str = "",
    first_look: Callable[[], Seen | None] = lambda: None,
) -> str:
    """The total time of uses, as "about 12 min" and the word `left`, or a note that it is not known.

    `first_look` is called if a use never ran here and corpus or starting model do not exist yet.
    """
    uses = list(uses)
    expected = [expected_seconds(use, configs[use.name], root) for use in uses]
    known = [seconds for seconds in expected if seconds is not None]
    if len(known) == len(expected):
        return f"about {in_words(sum(known))}{left}"
    scale, about, by = None, "about", "the speed of this machine"
    if on_processor():
        scale = scale_of(root / CORPUS["corpus"], root / START)
        if scale is None and (seen := first_look()):
            scale, about = seen[0], "about" if seen[1] else "more than"
            by = f"a first look at the source and {by}"
    if scale is not None:
        reckoned = [
            predicted_seconds(use.step_name, configs[use.name], scale) if seconds is None else seconds
            for use, seconds in zip(uses, expected)
        ]
        return f"{about} {in_words(sum(reckoned))}{left}, estimated from {by}"
    if not known:
        return "no estimate yet, because nothing like it has run here"
    new = f"{len(expected) - len(known)} of {len(expected)}"
    return f"more than {in_words(sum(known))}{left} ({new} steps run here for the first time)"


def _digest(config: Any) -> str:
    return digest_json([asdict(config), device()])[:20]


def _passages(root: Path) -> float:
    """The number of passages in the corpus; 0 if there is none yet."""
    with suppress(InputError):
        return float(read_manifest(root / CORPUS["corpus"], verify=False).facts.get("passages", 0))
    return 0.0


def _path(step: str) -> Path:
    return work_root() / "times" / f"{step}.json"


def _read(step: str) -> Times:
    try:
        content = json.loads(_path(step).read_text(encoding="utf-8"))
        return {
            str(use): {str(digest): [float(seconds), float(passages)] for digest, (seconds, passages) in known.items()}
            for use, known in content.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
