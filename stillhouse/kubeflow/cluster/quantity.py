"""Amounts in the notation of Kubernetes: 500m of a CPU, 64Gi of memory, 1e3."""

from __future__ import annotations

import re

FACTORS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0}
FACTORS |= {letter: 1000.0**power for power, letter in enumerate("kMGTPE", start=1)}
FACTORS |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)}
QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)([numkMGTPE]?|[KMGTPE]i)")


def amount(text: str) -> float:
    """A quantity as a number of CPUs, bytes or pieces. Raises `ValueError` for anything else."""
    match = QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    return float(match[1]) * FACTORS[match[2]]
