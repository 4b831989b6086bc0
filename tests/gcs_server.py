"""A server of Google Cloud Storage in this process, with an empty bucket."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

BUCKET = "shelf"


@contextmanager
def gcs_server(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Puts the address of the server in the environment; it needs no credentials."""
    emulator = pytest.importorskip("gcp_storage_emulator.server", reason="the extra `dev` has the GCS server")
    pytest.importorskip("dvc_gs", reason="the extra `gcs` is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    patch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    server = emulator.create_server("127.0.0.1", port, in_memory=True, default_bucket=BUCKET)
    server.start()
    try:
        for _ in range(100):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.1)
        yield
    finally:
        server.stop()
