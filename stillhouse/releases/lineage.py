"""What a release says about each of its folders, so that they can be traced back to git and DVC.

`digest` is Stillhouse's own (its manifest covers all files), `dvc` is DVC's name for the folder, `revision` is the git
commit of the code if known, and `parameters` is the digest of the settings.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from stillhouse.core.artifacts import digest_json, read_manifest
from stillhouse.core.context import own_namespace
from stillhouse.core.monitoring.settings import PIPELINE, RUN

REVISION = "STILLHOUSE_REVISION"
"""Environment variable with the git commit of the code; an image sets it."""
AT_ONCE = 1 << 20


def lineage(folder: Path) -> dict[str, str]:
    """The lineage of an artifact folder that a step wrote."""
    manifest = read_manifest(folder, verify=False)
    return {
        "digest": manifest.digest,
        "dvc": dvc_digest(folder),
        "revision": os.environ.get(REVISION, ""),
        "parameters": digest_json([manifest.step, manifest.config]),
    }


def kubeflow_run() -> dict[str, str]:
    """The Kubeflow run of this process: `id`, `pipeline`, `namespace`; empty outside Kubeflow."""
    if not (run := os.environ.get(RUN)):
        return {}
    found = {"id": run, "pipeline": os.environ.get(PIPELINE, ""), "namespace": own_namespace()}
    return {name: value for name, value in found.items() if value or name != "namespace"}


def dvc_digest(path: Path) -> str:
    """DVC's name for a file or folder: the MD5 of the file, or of the list of the folder's files with `.dir` appended.

    Computed here because DVC's outputs are whole folders of steps; tests compare it with DVC's own.
    """
    if path.is_file():
        return _md5(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listed = sorted(
        ({"md5": _md5(file), "relpath": file.relative_to(path).as_posix()} for file in files),
        key=lambda entry: entry["relpath"],
    )
    return hashlib.md5(json.dumps(listed, sort_keys=True).encode(), usedforsecurity=False).hexdigest() + ".dir"


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(AT_ONCE):
            digest.update(block)
    return digest.hexdigest()
