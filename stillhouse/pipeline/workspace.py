"""Makes a workspace: a recipe as params.yaml, its dvc.yaml, and, if DVC is installed, its repository without git."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import refuse_file_above
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.core.own_files import make_folder
from stillhouse.corpus.sources.options import SAMPLE
from stillhouse.pipeline.dvc_file import render
from stillhouse.pipeline.graph import ARTIFACTS, graph_of
from stillhouse.pipeline.recipe_settings import with_sections
from stillhouse.pipeline.recipes import configs, find_recipe, load_recipe, moved

PARAMS = "params.yaml"
OWN_FILES = (PARAMS, "dvc.yaml", "dvc.lock", ".dvc")
IGNORED = {
    ".gitignore": ("/artifacts/", "/.stillhouse/"),
    ".dvcignore": ("# Files that DVC should ignore: unfinished work.", ".stillhouse"),
    # What DVC writes in a git repository. The folder may be in one already, or be added to one later.
    ".dvc/.gitignore": ("/config.local", "/tmp", "/cache"),
}
"""Lines that are added to ignore files."""


def refuse_inside(folder: Path, source: str) -> None:
    """Raises `InputError` if a run's folder is in its source, and its files would become documents."""
    if source in ("", SAMPLE) or not folder.resolve().is_relative_to(Path(source).expanduser().resolve()):
        return
    from stillhouse.corpus.sources.detect import TREES, open_source  # reads documents with packages of the steps

    if open_source(source).format in TREES:
        raise InputError(f"{folder} is inside the source, and a run's files would become documents; choose another")


def make_workspace(
    folder: Path, source: str | None, recipe: str, own: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Makes `folder`, or fills an existing folder that is not a workspace yet.

    `source` is a path relative to the current folder, an absolute path, or a name that `ingest` knows (`sample` for the
    built-in corpus, `ir_datasets:<id>`). If the recipe has a `repo`, it is a path in that repository. Without `source`,
    the recipe's own stays. `own` holds settings, by section, that replace the recipe's. Existing content of `folder`
    stays too: `.gitignore` and `.dvcignore` get more lines. Raises `InputError` if `folder` is a
    workspace already or holds what `dvc repro` would replace, and for an unknown recipe or setting.
    """
    path = find_recipe(recipe)
    original = load_recipe(path)
    given = {} if source is None else {"ingest": {"source": str(Path(source).expanduser())}}
    settings = moved(with_sections(with_sections(original, given), own or {}), Path(), folder)
    configs(settings, str(path))
    changes = {
        name: {key: value for key, value in settings[name].items() if original.get(name, {}).get(key) != value}
        for name in dict.fromkeys(step.section for step in graph_of(settings))
        if name in settings
    }

    make_folder(folder)
    if with_dvc():
        logging.getLogger("dvc").setLevel(logging.WARNING)  # without DVC's own greeting
        with doing("making a DVC repository"):
            from dvc.repo import Repo

            Repo.init(str(folder), no_scm=True).close()
        with (folder / ".dvc" / "config").open("a", encoding="utf-8") as file:
            file.write("    analytics = false\n")
    for name, lines in IGNORED.items():
        if (folder / name).parent.is_dir():  # not .dvc, without DVC
            with (folder / name).open("ab") as file:  # any lines of the user's stay
                file.write("\n".join(["", *lines, ""]).encode())
    (folder / PARAMS).write_bytes(path.read_bytes())
    write_settings(folder, {name: values for name, values in changes.items() if values})
    (folder / "dvc.yaml").write_text(render(settings, folder), encoding="utf-8")


def write_settings(folder: Path, changes: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes settings, by section, to params.yaml and keeps its comments. Adds sections that it lacks."""
    from ruamel.yaml import YAML

    editor = YAML()
    editor.preserve_quotes = True
    content = editor.load((folder / PARAMS).read_text(encoding="utf-8")) or {}
    before = {name: dict(content[name] or {}) for name in changes if name in content}
    if all(name in before and {**before[name], **values} == before[name] for name, values in changes.items()):
        return
    for name, values in changes.items():
        content[name] = content.get(name) or {}
        content[name].update(values)
    with (folder / PARAMS).open("w", encoding="utf-8") as file:
        editor.dump(content, file)


def with_dvc() -> bool:
    """Whether the extra `dvc` is installed; without it, `stillhouse run` runs a workspace."""
    return find_spec("dvc") is not None


def refuse_taken(folder: Path) -> None:
    """Raises `InputError` for a folder that is a workspace, or that holds what a workspace would replace."""
    refuse_file_above(folder / "params.yaml")
    for name in OWN_FILES:
        if os.path.lexists(folder / name):
            raise InputError(f"{folder} already has a {name}; choose another folder, or edit its params.yaml")
    artifacts = folder / ARTIFACTS
    if os.path.lexists(artifacts) and not (artifacts.is_dir() and not any(artifacts.iterdir())):
        raise InputError(
            f"{artifacts} exists, and `dvc repro` would write there; move it away, or choose another folder"
        )
    for name in IGNORED:
        if os.path.lexists(folder / name) and (not (folder / name).is_file() or (folder / name).is_symlink()):
            raise InputError(
                f"{folder / name} is not a regular file, so no line can be added to it; choose another folder"
            )


def refuse_missing(source: str) -> None:
    """Raises `InputError` for a source that is neither a path nor a name that `ingest` knows."""
    from stillhouse.corpus.sources.ir_datasets_id import SCHEME

    if not (source == SAMPLE or source.startswith(SCHEME) or Path(source).expanduser().exists()):
        raise InputError(
            f"the source {source} does not exist; give --source a folder, a file, '{SAMPLE}' or '{SCHEME}<id>'"
        )
