"""The compiled pipelines under manifests/pipelines, for an API server that stores them as resources.

    manifests/pipelines/cpu/    without accelerators, from recipes that two cores can run
    manifests/pipelines/gpu/    the papers' recipes on GPUs

`make compile` writes them, and git ignores them. The image is `kubeflow.pipelines.image.DEFAULT` regardless of the
environment, since runs name their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from stillhouse.core.artifacts import refuse_file_above, write_whole
from stillhouse.core.environment import environment_variables
from stillhouse.core.errors import InputError
from stillhouse.core.own_files import make_folder
from stillhouse.kubeflow.pipelines.catalog import RESULTS, Request
from stillhouse.kubeflow.pipelines.image import VARIABLE
from stillhouse.kubeflow.pipelines.ir import compile_small
from stillhouse.kubeflow.pipelines.placement_table import find_table

SOURCES: Mapping[str, tuple[str, str]] = {"cpu": ("", "all-objectives"), "gpu": ("simlm-msmarco", "simlm-table7")}
"""The recipe and sweep for the pipelines of each placement table; "" = each pipeline's default."""
FIRST_LINE = "# Compiled by `stillhouse pipeline compile`; change the pipeline's code, not this file.\n"
KUSTOMIZATION = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"


def compiled_files() -> dict[str, str]:
    """Every file below the folder, with its text."""
    files = {}
    with environment_variables({VARIABLE: None}):
        for table, (recipe, sweep) in SOURCES.items():
            for pipeline in RESULTS:
                compiled = compile_small(Request(pipeline, recipe, sweep).build(find_table(table)))
                files[f"{table}/{pipeline}.yaml"] = FIRST_LINE + compiled.as_resources()
            listed = "".join(f"  - {pipeline}.yaml\n" for pipeline in sorted(RESULTS))
            files[f"{table}/kustomization.yaml"] = f"{FIRST_LINE}{KUSTOMIZATION}{listed}"
    return files


def write_all(folder: Path) -> list[Path]:
    """Writes every file, each completely or not at all.

    Raises `InputError`, and writes nothing, if one would replace a file that was not compiled this way.
    """
    files = {folder / name: text for name, text in compiled_files().items()}
    for path in files:
        refuse_file_above(path)
        compiled = path.is_file() and not path.is_symlink() and path.read_bytes().startswith(FIRST_LINE.encode())
        if os.path.lexists(path) and not compiled:
            raise InputError(f"{path} exists, but Stillhouse did not make it; move it away, or name another --folder")
    for path, text in files.items():
        make_folder(path.parent)
        write_whole(path, text)
    return list(files)
