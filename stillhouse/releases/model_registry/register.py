"""Brings the Model Registry up to date with git: a version for each release, and the one in use alone `LIVE`.

Git is what is so. Whatever is lacking in the registry is added, whoever promoted it and whenever, so the same again
changes nothing, and one that was cut off is made whole by the next. A version is made `LIVE`, gets its artifact, and is
archived where it is not in use: an archived one is therefore whole. What others made there stays unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from stillhouse.errors import InputError
from stillhouse.releases.git import Git
from stillhouse.releases.model_registry.entry import COMMIT, entry_of, model_of, repository_of
from stillhouse.releases.model_registry.server import ARCHIVED, LIVE, Conflict, Registry, Version
from stillhouse.releases.model_registry.settings import MODEL, RegistrySettings, registry_settings
from stillhouse.releases.tags import History, Release, read_history
from stillhouse.remote.deadline import within

SECONDS = 120.0
"""How long a registry may hold up a promotion, whatever it answers."""
ATTEMPTS = 6
PAUSE = 0.5
"""Seconds before the second attempt; each pause is that much longer than the one before."""
COMMAND = "stillhouse release register"
LABEL = "modelregistry.kubeflow.org/"
"""How the labels begin that the registry's controller of InferenceServices reads."""


@dataclass(frozen=True)
class Registered:
    """What the registry has now: the model, the version that is in use, and how many were added by this call.

    `model_id` and `version_id` are the registry's own ids of the two.
    """

    model: str
    in_use: str
    added: int
    model_id: str
    version_id: str

    @property
    def sentence(self) -> str:
        added = f", {self.added} added" if self.added else ""
        return f"the Model Registry has {self.model} {self.in_use} as the version in use{added}"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of an `InferenceService`, by which Kubeflow's registry knows which version it serves."""
        return {f"{LABEL}registered-model-id": self.model_id, f"{LABEL}model-version-id": self.version_id}


def register(git: Git, settings: RegistrySettings) -> Registered:
    """Registers every release that the registry lacks, and says which is in use.

    Raises `InputError` where nothing is released, where the registry does not answer or refuses, and where its model
    has a version of that name that is of something else.
    """
    history = read_history(git)
    if history.champion is None:
        raise InputError("nothing is released yet, so there is nothing to register")
    name = settings.model or model_of(repository_of(git))

    def bring() -> Registered:
        for attempt in range(ATTEMPTS):
            time.sleep(PAUSE * attempt)
            with suppress(Conflict):  # another registers the same just now
                return _bring_up_to_date(Registry(settings), git, history, settings, name)
        raise InputError(f"others change {name} at {settings.address} at the same time; repeat the command")

    return within(SECONDS, bring)


def _bring_up_to_date(
    registry: Registry, git: Git, history: History, settings: RegistrySettings, name: str
) -> Registered:
    champion = history.champion
    assert champion is not None
    model = registry.model(name, f"Retrievers released in {repository_of(git)}")
    versions = registry.versions(model)
    for release in history.releases:
        if release.name in versions:
            _refuse_other(versions[release.name], release, name, settings.address)
    lacking = [release for release in history.releases if release.name not in versions]
    for release in lacking:
        versions[release.name] = registry.create_version(model, entry_of(git, release, settings))
    # The one in use first: whoever looks meanwhile finds two that are live, and never none.
    for release in sorted(history.releases, key=lambda release: release.tag != champion.tag):
        version, in_use = versions[release.name], release.tag == champion.tag
        if (in_use or version.state == LIVE) and not registry.has_artifact(version):
            registry.create_artifact(version, entry_of(git, release, settings))
        wanted = LIVE if in_use else ARCHIVED
        if version.state != wanted:
            registry.set_state(version, wanted)
    return Registered(name, champion.name, len(lacking), model, versions[champion.name].id)


def _refuse_other(version: Version, release: Release, name: str, address: str) -> None:
    if version.texts.get(COMMIT) != release.commit:
        raise InputError(
            f"the model {name} at {address} has a version {version.name} that is not the release of "
            f"{release.commit[:10]}; give this repository's model another name by {MODEL}"
        )


def follow(git: Git, log: Callable[[str], None]) -> None:
    """Has the registry follow a promotion or rollback, where one is configured; what goes wrong is said and no more."""
    try:
        settings = registry_settings()
        if settings is not None:
            log(register(git, settings).sentence)
    except Exception as error:  # whatever is wrong with the registry, the release is out
        why = str(error) if isinstance(error, (InputError, TimeoutError)) else type(error).__name__
        log(f"the release stands, but the Model Registry does not have it: {why}. `{COMMAND}` registers it later")
