"""A Pushgateway that is set up as in the pod of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gateway_stand_in import Gateway


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    made = Gateway()
    monkeypatch.setenv("STILLHOUSE_PUSHGATEWAY", made.url)
    monkeypatch.setenv("STILLHOUSE_PIPELINE", "refresh")
    monkeypatch.setenv("STILLHOUSE_RUN", "run-1")
    yield made
    made.server.shutdown()
