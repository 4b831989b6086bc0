"""Compiles the pipeline to a file that Kubeflow takes."""

from __future__ import annotations

from pathlib import Path

from kfp import compiler

from pipelines.retriever import build_pipeline
from stillhouse.surfaces.recipes import find_recipe, load_recipe


def compile_pipeline(recipe: str, output: Path) -> None:
    """Writes the pipeline of a recipe, a shipped name or a file, as IR YAML.

    Raises `InputError` for an unknown recipe, section or setting.
    """
    path = find_recipe(recipe)
    pipeline = build_pipeline(load_recipe(path), str(path))
    output.parent.mkdir(parents=True, exist_ok=True)
    compiler.Compiler().compile(pipeline, str(output))
