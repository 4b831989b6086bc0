"""How many random samples an interval and a test draw, unless a setting says otherwise.

They are apart from `significance.py`, which needs numpy, so that `--help` can show them at once.
"""

from __future__ import annotations

BOOTSTRAP_SAMPLES = 2000
"""For each percentile-bootstrap interval."""
RANDOMISATION_SAMPLES = 10_000
"""For each randomisation test. The smallest p-value that this many sign flips can give is 0.0001."""
