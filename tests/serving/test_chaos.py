"""No request fails and no answer mixes releases, whatever happens to the folder. `chaos.py` runs longer."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from chaos import Chaos, offline

CHOSEN = os.environ.get("STILLHOUSE_CHAOS", "40 4 15 0 0").split()
TIMES, KILLS, SECONDS, SEED, PAUSE = map(float, CHOSEN)


@pytest.mark.long
def test_every_answer_is_right_whatever_happens_to_the_folder(two_releases: list[Path], tmp_path: Path) -> None:
    chaos = Chaos(two_releases, dict(map(offline, two_releases)), tmp_path, int(SEED), PAUSE)
    began = time.monotonic()
    chaos.run(int(TIMES), int(KILLS if KILLS >= 0 else TIMES // 200), SECONDS)
    done = ", ".join(f"{count} {kind}" for kind, count in sorted(chaos.done.items()))
    took = time.monotonic() - began
    print(f"\n{chaos.done.total()} times in {took:.0f} s ({done}); answers {dict(chaos.answers)}, all compared;")
    print(f"{chaos.excused} failed at a kill; {len(chaos.wrong)} wrong")
    assert not chaos.wrong, chaos.wrong[:5]
    assert set(chaos.answers) == set(chaos.expected) and chaos.done["swap"]
