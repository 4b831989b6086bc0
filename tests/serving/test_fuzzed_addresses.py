"""Requests generated from the service's own OpenAPI page, to every address: no crashes; each refusal is a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from serving_releases import Running, running

from stillhouse.serving.settings import Limits

LIMITS = Limits(texts=8, characters=200, top=50, body=20_000)
EXAMPLES = settings(max_examples=60, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def service(two_releases: list[Path]) -> Iterator[Running]:
    with running(two_releases[0], LIMITS) as found:
        yield found


@pytest.mark.long
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_no_address_crashes(service: Running, mode: GenerationMode) -> None:
    """The requests either follow the schema or violate it."""
    schema = schemathesis.openapi.from_dict(service.client.get("/openapi.json").json())
    operations = [found.ok() for found in schema.get_all_operations()]
    paths = {operation.path for operation in operations}
    assert {"/", "/search", "/embed", "/v1/embeddings", "/v2/rerank", "/v2/models/{name}/infer"} <= paths
    statuses: dict[str, set[int]] = {}

    @EXAMPLES
    @given(case=st.one_of([operation.as_strategy(generation_mode=mode) for operation in operations]))
    def ask(case: Any) -> None:
        answer = case.call(base_url=service.url)
        assert answer.status_code < 500, answer.text
        statuses.setdefault(case.path, set()).add(answer.status_code)
        if answer.status_code >= 400:
            found = answer.json()
            error = found.get("error", found)
            sentence = error if isinstance(error, str) else error["message"]
            assert sentence and "\n" not in sentence and "Traceback" not in sentence
        assert answer.headers.get("X-Injected") is None

    ask()
    assert len(statuses) > 5
    assert service.client.get("/ready").status_code == 200
