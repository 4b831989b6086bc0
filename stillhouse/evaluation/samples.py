"""How many random samples an interval and a test draw: settings of every step that measures.

They are apart from `significance.py`, which needs numpy, so that `--help` shows them at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.config import setting


@dataclass(frozen=True)
class Samples:
    """The samples of a percentile-bootstrap interval and of a randomisation test, and their seed.

    The smallest p-value that 10,000 sign flips can give is 0.0001.
    """

    bootstrap_samples: int = setting(2000, "bootstrap samples for each interval", minimum=100)
    randomisation_samples: int = setting(10_000, "random sign flips for each p-value", minimum=100)
    seed: int = setting(42, "seed of every random choice", minimum=0)
