"""A server of Google Cloud Storage in this process, with an empty bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ports import free_port, wait_for

BUCKET = "storage"


@contextmanager
def gcs_server(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Puts the address of the server in the environment; it needs no credentials."""
    emulator = pytest.importorskip("gcp_storage_emulator.server", reason="the extra `dev` has the GCS server")
    pytest.importorskip("dvc_gs", reason="the extra `gcs` is not installed")
    port = free_port()
    patch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    server = emulator.create_server("127.0.0.1", port, in_memory=True, default_bucket=BUCKET)
    server.start()
    try:
        wait_for(port)
        yield
    finally:
        server.stop()
