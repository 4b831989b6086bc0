"""Brings the Model Registry up to date with git: one version per release, and only the one in use is `LIVE`.

Git is the source of truth. Each call adds whatever the registry lacks. Repeating it changes nothing, and the next call
completes one that was cut off. A version is created `LIVE`, gets its artifact, and is archived if it is not in use, so
an archived version is always complete. Entries made by others stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable

from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.releases.git import Git
from stillhouse.releases.model_registry.entry import COMMIT, entry_of, model_of, repository_of
from stillhouse.releases.model_registry.server import ARCHIVED, LIVE, Conflict, Registry, Version
from stillhouse.releases.model_registry.settings import MODEL, RegistrySettings, registry_settings
from stillhouse.releases.tags import History, Release, read_history

COMMAND = "stillhouse release register"


@doing("updating the Model Registry")
def register(git: Git, settings: RegistrySettings) -> str:
    """Registers every release that the registry lacks, marks the one in use, and returns what it has as a sentence.

    Raises `InputError` if nothing is released, if the registry does not answer or refuses, or if its model has a
    version with a release's name that is something else.
    """
    history = read_history(git)
    if history.champion is None:
        raise InputError("there is no release yet to register; promote a release first")
    name = settings.model or model_of(repository_of(git))
    try:
        added = _bring_up_to_date(Registry(settings), git, history, history.champion, settings, name)
    except Conflict:
        raise InputError(f"somebody else is changing {name} at {settings.address}; repeat the command") from None
    said = f", {added} added" if added else ""
    return f"the Model Registry has {name} {history.champion.name} as the version in use{said}"


def _bring_up_to_date(
    registry: Registry, git: Git, history: History, champion: Release, settings: RegistrySettings, name: str
) -> int:
    model = registry.model(name, f"Retrievers released in {repository_of(git)}")
    versions = registry.versions(model)
    for release in history.releases:
        if release.name in versions:
            _refuse_other(versions[release.name], release, name, settings.address)
    lacking = [release for release in history.releases if release.name not in versions]
    for release in lacking:
        versions[release.name] = registry.create_version(model, entry_of(git, release))
    # The one in use first: meanwhile two versions may be live, but never none.
    for release in sorted(history.releases, key=lambda release: release.tag != champion.tag):
        version, in_use = versions[release.name], release.tag == champion.tag
        if (in_use or version.state == LIVE) and not registry.has_artifact(version):
            registry.create_artifact(version, entry_of(git, release))
        wanted = LIVE if in_use else ARCHIVED
        if version.state != wanted:
            registry.set_state(version, wanted)
    return len(lacking)


def _refuse_other(version: Version, release: Release, name: str, address: str) -> None:
    if version.texts.get(COMMIT) != release.commit:
        raise InputError(
            f"the model {name} at {address} has a version {version.name} that is not the release of "
            f"{release.commit[:10]}; set {MODEL} to another name for this repository's model"
        )


def follow(git: Git, log: Callable[[str], None]) -> None:
    """Updates the registry after a promotion or rollback, if one is configured. Logs failures and raises none."""
    try:
        settings = registry_settings()
        if settings is not None:
            log(register(git, settings))
    except Exception as error:  # the release is out, whatever is wrong with the registry
        why = str(error) if isinstance(error, InputError) else type(error).__name__
        log(f"the release stands, but the Model Registry does not have it: {why}. Run `{COMMAND}` to register it later")
