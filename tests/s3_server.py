"""An S3 server in this process, with an empty bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

BUCKET = "storage"


@contextmanager
def s3_server(patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yields the address of the server and puts its credentials in the environment."""
    server_module = pytest.importorskip("moto.server", reason="moto, of the extra `dev`, is the S3 server")
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("dvc_s3", reason="the extra `s3` is not installed")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        patch.setenv(name, "testing")
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=BUCKET)
        yield endpoint
    finally:
        server.stop()
