"""Named folders inside one folder, to pass several artifacts to a Kubeflow component as one.

kfp only gives a component a list of artifacts if a single task in a loop made all of them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from stillhouse.artifacts import MANIFEST, read_manifest, whole_folder, write_manifest
from stillhouse.errors import InputError
from stillhouse.steps.spec import NAME

ORDER = "order"


def hold_folders(folders: Mapping[str, Path], holder: Path) -> None:
    """Puts folders that steps wrote, by name, into the new folder `holder`, which records their order.

    Raises `InputError` for a folder that no step wrote.
    """
    digests = {name: read_manifest(folder, verify=False).digest for name, folder in folders.items()}
    with whole_folder(holder) as staging:
        for name, folder in folders.items():
            shutil.copytree(folder, staging / name, copy_function=link_or_copy)
        write_manifest(staging, "hold-folders", {}, digests, {ORDER: list(folders)})


def held_folders(holder: Path) -> dict[str, Path]:
    """The folders inside `holder` by name, in its recorded order or else alphabetically.

    Raises `InputError` if there is none, and for an invalid name.
    """
    names = sorted(path.name for path in holder.iterdir() if path.is_dir()) if holder.is_dir() else []
    if (holder / MANIFEST).is_file():
        names = [str(name) for name in read_manifest(holder).facts.get(ORDER, names)]
    if not names:
        raise InputError(f"{holder} holds no folders; put each one into it under its name")
    for name in names:
        if not NAME.fullmatch(name):
            raise InputError(f"{holder / name}: use a name of letters, digits, _ and - that begins with a letter")
    return {name: holder / name for name in names}


def link_or_copy(file: str, target: str) -> None:
    """Hard-links the file on the same disk, as with the local runner; copies it otherwise."""
    try:
        os.link(file, target)
    except OSError:
        shutil.copyfile(file, target)
