"""Makes a workspace: a recipe as params.yaml, dvc.yaml rendered for it, and a DVC repository that needs no git."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stillhouse.errors import InputError
from stillhouse.surfaces.dvc_file import render
from stillhouse.surfaces.recipes import configs, find_recipe, load_recipe, moved, sections

IGNORED_BY_GIT = "/artifacts/\n/.stillhouse/\n"
IGNORED_BY_DVC = "# What DVC need not look at: unfinished work.\n.stillhouse\n"
OWN_FILES = ("params.yaml", "dvc.yaml", ".dvc")


def make_workspace(folder: Path, source: str | None, recipe: str) -> None:
    """Makes `folder`, or fills an existing one that is no workspace yet.

    `source` is a path relative to the current folder, an absolute path, or a name that `ingest` knows (`sample`: the
    built-in corpus); without it the recipe's own source stays. Raises `InputError` when `folder` is a workspace
    already, and for an unknown recipe or setting.
    """
    try:
        from dvc.repo import Repo
        from ruamel.yaml import YAML
    except ImportError:
        raise InputError("`stillhouse new` needs DVC: pip install 'stillhouse[platform]'") from None
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder that does not exist yet")
    for name in OWN_FILES:
        if (folder / name).exists():
            raise InputError(f"{folder} has a {name} already; name another folder, or edit its params.yaml")
    path = find_recipe(recipe)
    original = load_recipe(path)
    settings = dict(original)
    if source is not None:
        settings["ingest"] = settings.get("ingest", {}) | {"source": str(Path(source).expanduser())}
    settings = moved(settings, Path(), folder)
    configs(settings, str(path))

    # The recipe's own text is edited, so that its comments stay. DVC wants every section that a stage names.
    round_trip = YAML()
    round_trip.preserve_quotes = True
    text = round_trip.load(path.read_text(encoding="utf-8")) or {}
    for name in sections(settings):
        text.setdefault(name, {})
        if text[name] is None:
            text[name] = {}
        for key, value in settings.get(name, {}).items():
            if original.get(name, {}).get(key) != value:
                text[name][key] = value

    folder.mkdir(parents=True, exist_ok=True)
    with _quiet_dvc():
        Repo.init(str(folder), no_scm=True).close()
    with (folder / ".dvc" / "config").open("a", encoding="utf-8") as file:
        file.write("    analytics = false\n")
    (folder / ".dvcignore").write_text(IGNORED_BY_DVC, encoding="utf-8")
    (folder / ".gitignore").write_text(IGNORED_BY_GIT, encoding="utf-8")
    with (folder / "params.yaml").open("w", encoding="utf-8") as file:
        round_trip.dump(text, file)
    (folder / "dvc.yaml").write_text(render(settings, folder), encoding="utf-8")


@contextmanager
def _quiet_dvc() -> Iterator[None]:
    """Keeps DVC's own greeting away from the output of `stillhouse new`."""
    logger = logging.getLogger("dvc")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
