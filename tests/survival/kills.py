"""Kill processes at random moments, until enough kills hit one that is still at work.

`STILLHOUSE_KILLS` sets the number of kills (`make test-kill` raises it). The moments come from a printed seed, which
`STILLHOUSE_KILL_SEED` sets again; the timing of the system still differs.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

KILLS = int(os.environ.get("STILLHOUSE_KILLS", "1"))
SEED = int(os.environ.get("STILLHOUSE_KILL_SEED") or random.SystemRandom().randrange(2**32))


def land_kills(name: str, seconds: float, kill: Callable[[float], bool]) -> None:
    """Calls `kill` with moments up to `seconds`, the time of an undisturbed run, until `KILLS` kills have landed.

    `kill(moment)` starts the work called `name`, kills it after `moment` seconds, checks what is left, and returns
    whether it was still running.
    """
    chance, moments = random.Random(f"{SEED} {name}"), list[float]()
    for _ in range(20 * KILLS):
        if len(moments) == KILLS:
            break
        moment = chance.uniform(0, seconds)
        if kill(moment):
            moments.append(moment)
        else:  # it resumed where the last one stopped, and finished before the kill
            seconds = moment
    print(f"seed {SEED}: killed after {', '.join(f'{moment:.3f}' for moment in moments)} s")
    assert len(moments) == KILLS, "it was done before each kill"
