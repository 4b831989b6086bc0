"""How long uses of steps took on this machine, and the time left of a run estimated from that.

For uses that never ran here, the time is computed from their arithmetic (`first_run_times`), with the scale of corpus
and base model once these exist.

Seconds are kept in the work area, never in an artifact: `times/<step>.json` maps a use to the digest of its settings to
[seconds, passages of the corpus]. They are a convenience: a file that is damaged, foreign or not writable affects only
the estimates.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import digest_json, read_manifest
from stillhouse.core.context import device, work_root
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.core.monitoring.duration import by_stage, in_words
from stillhouse.core.own_files import own_file
from stillhouse.pipeline.first_run_times import ON_GPU, on_processor, predicted_seconds, scale_of
from stillhouse.pipeline.graph import CORPUS, START, Use

Times = dict[str, dict[str, list[float]]]
KEPT = 10
"""How many settings of a use to keep the seconds for."""


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
    """How long a use, or else another use of its step, took with these settings; None if unknown.

    They are scaled with the corpus, except for a training whose number of steps is a setting.
    """
    times, digest = _read(use.step_name), _digest(config)
    for known in (times.get(use.name, {}), *times.values()):
        if digest in known:
            seconds, passages = known[digest]
            grows = use.inputs and not getattr(config, "max_steps", 0)
            return seconds * _passages(root) / passages if grows and passages and _passages(root) else seconds
    return None


@dataclass(frozen=True)
class Estimate:
    """The seconds of uses, by name; None for those that are not known.

    `computed` if some were, and `why` is a reason why some are not known, if there is one.
    """

    seconds: Mapping[str, float | None]
    computed: bool = False
    why: str = ""

    @property
    def known(self) -> dict[str, float]:
        return {name: seconds for name, seconds in self.seconds.items() if seconds is not None}

    def of(self, name: str) -> str:
        """The time of one use, as "about 2 min"; empty if it is not known."""
        return f"about {in_words(self.known[name])}" if name in self.known else ""

    def total(self, left: str = "") -> str:
        """The time of all uses, as "about 12 min" and the words `left`, or a note that it is not known."""
        known = self.known
        if len(known) == len(self.seconds):
            by = ", estimated from the speed of this machine" if self.computed else ""
            return f"about {in_words(sum(known.values()))}{left}{by}"
        if not known:
            return "no estimate yet, because nothing similar has run here" + (f" and {self.why}" if self.why else "")
        new = f"{len(self.seconds) - len(known)} of {len(self.seconds)}"
        return f"more than {in_words(sum(known.values()))}{left} ({new} steps run here for the first time)"

    def stages(self) -> list[str]:
        """Lines with the times of single uses; none if some are not known."""
        return by_stage(self.known) if len(self.known) == len(self.seconds) > 1 else []


@doing("estimating the time")
def estimate(uses: Iterable[Use], configs: Mapping[str, Any], root: Path) -> Estimate:
    """The times of uses, from earlier runs here or computed."""
    uses = list(uses)
    expected = {use.name: expected_seconds(use, configs[use.name], root) for use in uses}
    if None not in expected.values():
        return Estimate(expected)
    if not on_processor():
        return Estimate(expected, why=ON_GPU)
    scale = scale_of(root / CORPUS["corpus"], root / START)
    if scale is None:
        return Estimate(expected, why="there is no corpus yet")
    for use in uses:
        if expected[use.name] is None:
            expected[use.name] = predicted_seconds(use.step_name, configs[use.name], scale)
    return Estimate(expected, computed=True)


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
