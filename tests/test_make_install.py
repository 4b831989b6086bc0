"""`make install` takes PyTorch's CPU build where no GPU is seen and its index answers, else that of pip's own index."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from ports import free_port

ROOT = Path(__file__).resolve().parents[1]
PYTHON = f"""#!/bin/sh
# Stands in for Python and for the environment's: notes what pip would install, and runs only code that it is given.
case "$2" in
  venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  pip) echo "$@" >> "$(dirname "$0")/../asked" ;;
  *) exec {sys.executable} "$@" ;;
esac
"""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """The address of an index that has torch."""
    (tmp_path / "index/torch").mkdir(parents=True)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def installed(tmp_path: Path, *words: str) -> tuple[list[str], str]:
    """Return the installations that `make install` asks for, and what it says."""
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    given = ["make", "install", f"PYTHON={tmp_path}/python", f"VENV={tmp_path}/venv", *words]
    done = subprocess.run(given, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return (tmp_path / "venv/asked").read_text().splitlines(), done.stdout


def test_an_index_that_answers_is_asked_first(tmp_path: Path, index: str) -> None:
    (torch, project), _ = installed(tmp_path, f"TORCH_INDEX={index}")
    assert torch.endswith(f"--index-url {index} torch") and "--editable" in project


def test_an_index_that_cannot_be_reached_is_said_and_passed_over(tmp_path: Path) -> None:
    index = f"http://127.0.0.1:{free_port()}"
    [project], said = installed(tmp_path, f"TORCH_INDEX={index}")
    assert "--editable" in project and f"{index} cannot be reached" in said


@pytest.mark.parametrize(("gpu", "asked"), [(True, 1), (False, 2)])
def test_a_gpu_or_an_empty_index_takes_pip_s_own(
    tmp_path: Path, index: str, gpu: bool, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Makefile names the index only where `nvidia-smi` is not found."""
    makefile = (ROOT / "Makefile").read_text().replace("https://download.pytorch.org/whl/cpu", index)
    (tmp_path / "Makefile").write_text(makefile)
    (tmp_path / "bin").mkdir()
    if gpu:
        (tmp_path / "bin/nvidia-smi").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    found, _ = installed(tmp_path, "--file", str(tmp_path / "Makefile"))
    assert len(found) == asked
    assert len(installed(tmp_path / "bin", "--file", str(tmp_path / "Makefile"), "TORCH_INDEX=")[0]) == 1
