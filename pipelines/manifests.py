"""The pipelines that lie compiled under manifests/pipelines, for an API server that keeps them as resources.

    manifests/pipelines/cpu/    without accelerators, from recipes of the sample's size
    manifests/pipelines/gpu/    the papers' recipes on GPUs

A test compares the files with what the code compiles. The image is `components.image.DEFAULT`, whatever the environment
says: the runs name their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from components.image import VARIABLE
from pipelines.catalog import RESULTS, Request
from pipelines.ir import compile_small
from pipelines.placement_table import find_table

SOURCES: Mapping[str, tuple[str, str]] = {"cpu": ("sample", "all-objectives"), "gpu": ("001-msmarco", "001-table7")}
"""The recipe and the sweep that the pipelines of each table of placements are compiled from."""
FIRST_LINE = "# Compiled by `stillhouse pipeline compile`; change the pipeline's code, not this file.\n"


def compiled_files() -> dict[str, str]:
    """Every file below the folder and its text."""
    files = {}
    own_image = os.environ.pop(VARIABLE, None)
    try:
        for table, (recipe, sweep) in SOURCES.items():
            for pipeline in RESULTS:
                compiled = compile_small(Request(pipeline, recipe, sweep).build(find_table(table)))
                files[f"{table}/{pipeline}.yaml"] = FIRST_LINE + compiled.as_resources()
            files[f"{table}/kustomization.yaml"] = kustomization([f"{pipeline}.yaml" for pipeline in RESULTS])
    finally:
        if own_image is not None:
            os.environ[VARIABLE] = own_image
    return files


def kustomization(resources: list[str]) -> str:
    listed = "".join(f"  - {name}\n" for name in sorted(resources))
    return f"{FIRST_LINE}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{listed}"


def write_all(folder: Path) -> list[Path]:
    """Writes every file, each whole or not at all."""
    paths = []
    for name, text in compiled_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.partial")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.rename(path)
        paths.append(path)
    return paths
