"""What a step reads outside the run: the settings that name a location, and the digests of its current content.

Settings and inputs do not say whether a source has changed. So a step records what it read, and a run repeats it only
if that is no longer the same, or cannot be known: a hub, a server, a branch of a repository.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import digest_file, digest_files, digest_json
from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.options import SAMPLE, sample_folder
from stillhouse.models.settings import NO_MODEL, PACKAGE
from stillhouse.pipeline.steps.spec import Step

COMMIT = re.compile("[0-9a-f]{40}")
IN_REPOSITORY = ("repo", "revision", "source")
"""The settings that name a DVC repository, its revision, and a path in it."""


def location_fields(step: Step) -> list[str]:
    """The settings of a step that name a location."""
    return [field.name for field in dataclasses.fields(step.config) if field.metadata.get("location")]


def is_fixed(step: Step, config: Any) -> bool:
    """Whether the settings say all that a step reads outside the run: a place may hold something else tomorrow."""
    named = _named(step, config)
    if COMMIT.fullmatch(named.get("revision", "")) and "repo" in named:
        named = _beside_repository(named)
    return all(value in (SAMPLE, NO_MODEL) or value.startswith(PACKAGE) for value in named.values())


def read_outside(step: Step, config: Any) -> dict[str, str] | None:
    """The digest of what each location in the settings holds now; None where that cannot be known.

    A path in a DVC repository at a whole commit never changes, so the commit and the path stand for what it holds.
    """
    named = _named(step, config)
    found: dict[str, str | None] = {}
    if "repo" in named:
        if not COMMIT.fullmatch(revision := named.get("revision", "")):
            return None
        found["source"] = digest_json([revision, named.get("source", "")])
        named = _beside_repository(named)
    found |= {name: _content(step, config, name, value) for name, value in named.items()}
    return None if None in found.values() else {name: str(digest) for name, digest in found.items()}


def read_here(step: Step, config: Any) -> dict[str, str | None]:
    """The digest of what each location in the settings holds that is a path on this machine."""
    named = _named(step, config)
    named = _beside_repository(named) if "repo" in named else named
    here = {name: value for name, value in named.items() if Path(value).expanduser().exists()}
    return {name: _content(step, config, name, value) for name, value in here.items()}


def _named(step: Step, config: Any) -> dict[str, str]:
    """The locations that the settings give."""
    return {name: str(value) for name in location_fields(step) if (value := getattr(config, name))}


def _beside_repository(named: dict[str, str]) -> dict[str, str]:
    """The locations that are not in the DVC repository."""
    return {name: value for name, value in named.items() if name not in IN_REPOSITORY}


def _content(step: Step, config: Any, name: str, value: str) -> str | None:
    if name == "model":  # of a chat server, it is no place
        return None if getattr(config, "base_url", None) else _model(value)
    path = sample_folder() if (name, value) == ("source", SAMPLE) else Path(value).expanduser()
    try:
        if path.is_file():
            return digest_file(path)
        return digest_json(digest_files(path)) if path.is_dir() else None
    except OSError:  # the step reports it
        return None


def _model(name: str) -> str | None:
    from stillhouse.models.model_place import content_of

    if name == NO_MODEL:
        return ""
    try:
        return digest_json(content_of(name))
    except InputError:  # the step reports it
        return None
