"""The image that every task runs in."""

from __future__ import annotations

import os

VARIABLE = "STILLHOUSE_IMAGE"
DEFAULT = "stillhouse:0.2.0"


def image() -> str:
    """`$STILLHOUSE_IMAGE` when the pipeline is compiled (on a cluster, by digest), else the default name."""
    return os.environ.get(VARIABLE) or DEFAULT
