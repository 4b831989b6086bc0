"""Azurite, Microsoft's Azure Blob Storage server, with an empty container (`npm install --global azurite`)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ports import free_port, wait_for

CONTAINER = "storage"
ACCOUNT = "testing"
KEY = "dGVzdGluZw=="
"""Of an account that is made for the test, in base64."""


@contextmanager
def azure_server(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """Puts the address and the credentials in the environment; `folder` holds what is stored."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite is not installed: npm install --global azurite")
    blob = pytest.importorskip("azure.storage.blob", reason="the extra `azure` is not installed")
    port = free_port()
    patch.setenv("AZURITE_ACCOUNTS", f"{ACCOUNT}:{KEY}")
    patch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection(port))
    words = ["--blobPort", str(port), "--location", str(folder), "--silent", "--skipApiVersionCheck"]
    with subprocess.Popen([program, *words], stdout=subprocess.DEVNULL) as server:
        try:
            wait_for(port)
            blob.BlobServiceClient.from_connection_string(connection(port)).create_container(CONTAINER)
            yield
        finally:
            server.terminate()


def connection(port: int) -> str:
    return (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
        f"BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT};"
    )
