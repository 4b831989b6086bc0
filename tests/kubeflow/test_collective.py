"""Collective sums over CPU processes with gloo: all of them arrive, a sum is wrong, or none is in time."""

from __future__ import annotations

import time

import pytest

from stillhouse.kubeflow.collective import failure_together

pytest.importorskip("torch")


def test_processes_that_reach_each_other_pass() -> None:
    assert failure_together(2, "gloo", 300.0) == ""


def test_a_process_that_does_not_take_part_is_reported() -> None:
    assert "no-such-backend" in failure_together(2, "no-such-backend", 300.0)


def test_processes_that_are_late_are_ended() -> None:
    begun = time.monotonic()
    assert failure_together(2, "gloo", 0.5) == "2 processes did not finish the sum within 0 s"
    assert time.monotonic() - begun < 60
