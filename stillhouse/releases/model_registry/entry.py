"""The entry of a release in the Model Registry. All of it comes from git, so it is the same whoever registers it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import redact
from stillhouse.core.yaml_file import parse_yaml
from stillhouse.releases.git import REMOTE, Git, GitFailed
from stillhouse.releases.tags import Release

MODEL_ARTIFACT = "retriever"
COMMIT = "commit"
"""The property that identifies a version as a release's: tags never move."""
FORMAT = "stillhouse"
WHAT_DVC_CALLS_S3 = {"gcs": "gs"}
"""Schemes of DVC remotes that KServe spells differently."""

Properties = Mapping[str, str | float]


@dataclass(frozen=True)
class Entry:
    """A version of the registered model and its artifact; `run` is the Kubeflow run that made it."""

    version: str
    description: str
    properties: Properties
    uri: str
    path: str
    run: Mapping[str, str]


def entry_of(git: Git, release: Release) -> Entry:
    """Builds the entry of a release. Raises `InputError` for a repository that cannot be read."""
    record = release.record
    retriever = record["artifacts"][MODEL_ARTIFACT]
    repository = repository_of(git)
    properties: dict[str, Any] = {
        COMMIT: release.commit,
        "git": repository,
        "tag": release.tag,
        "level": record.get("level") or record.get("rung", ""),  # of an earlier version,
        "previous": record.get("previous", ""),
        "image revision": retriever.get("revision", ""),
    }
    for name, artifact in record["artifacts"].items():
        properties |= {f"{name} digest": artifact["digest"], f"{name} dvc": artifact["dvc"]}
    source = record.get("source") or {}
    properties |= {f"corpus {name}": redact(str(value)) for name, value in source.items() if isinstance(value, str)}
    run = record.get("run") or {}
    properties |= {"Kubeflow run": run.get("id", ""), "pipeline": run.get("pipeline", "")}
    properties |= _figures(record)
    return Entry(
        release.name,
        record["summary"],
        {name: value for name, value in properties.items() if value != ""},  # Kubeflow's UI shows it as a label
        storage_uri(git, release) or f"git+{repository}@{release.tag}#{retriever['path']}",
        retriever["path"],
        run,
    )


def _figures(record: Mapping[str, Any]) -> Properties:
    """Figures on the test queries: the whole run's evaluation, and the comparison with the champion."""
    found: dict[str, str | float] = {}
    verdict = record.get("verdict") or {}
    if {"measure", "challenger"} <= verdict.keys():
        found[verdict["measure"]] = float(verdict["challenger"])
    if {"difference", "low", "high"} <= verdict.keys():
        found |= {
            "difference": float(verdict["difference"]),
            "difference interval": _interval(verdict["low"], verdict["high"]),
        }
    if "randomisation_p" in verdict:
        found["p"] = float(verdict["randomisation_p"])
    found |= {"verdict": verdict["reason"]} if verdict.get("reason") else {}
    figures = record.get("figures") or {}
    for measure, (mean, bounds) in figures.get("measures", {}).items():
        found[measure] = float(mean)
        if bounds:
            found[f"{measure} interval"] = _interval(*bounds)
    labels = verdict.get("labels") or figures.get("labels")
    return found | ({"test queries": labels} if labels else {})


def _interval(low: float, high: float) -> str:
    return f"{low:.4f} to {high:.4f}"


def storage_uri(git: Git, release: Release) -> str:
    """The location of the release's retriever in the DVC remote that its commit names; "" if that names no location.

    Remotes store files by their digests, and an output as a list (`….dir`): that of the step's folder, which contains
    the retriever. A remote with `version_aware` stores them by their names, as KServe reads them.
    """
    from configobj import ConfigObj

    try:
        config = ConfigObj(git("show", f"{release.commit}:.dvc/config").splitlines())
        remote = config[f'remote "{config["core"]["remote"]}"'] if "core" in config else {}
        url = str(remote["url"]).rstrip("/")
    except (GitFailed, KeyError):
        return ""
    artifact = release.record["artifacts"][MODEL_ARTIFACT]
    digest = _output_with(git, release, artifact["path"]) or artifact["dvc"]
    by_name = str(remote.get("version_aware", "")).lower() == "true"
    place = artifact["path"] if by_name else f"files/md5/{digest[:2]}/{digest[2:]}"
    if url.startswith("/"):
        url = f"file://{url}"
    scheme, colon, rest = url.partition("://")
    return f"{WHAT_DVC_CALLS_S3.get(scheme, scheme)}://{redact(rest)}/{place}" if colon else ""


def _output_with(git: Git, release: Release, path: str) -> str:
    """DVC's digest of the output that contains a path, by the dvc.lock of the release; "" if there is none."""
    try:
        stages = parse_yaml(git.read(release.commit, "dvc.lock"), "dvc.lock")["stages"]
    except (GitFailed, InputError, KeyError, TypeError):
        return ""
    outs = [out for stage in stages.values() for out in stage.get("outs", ())]
    return next((str(out["md5"]) for out in outs if PurePosixPath(path).is_relative_to(out["path"])), "")


def repository_of(git: Git) -> str:
    """The git remote's address, without a password."""
    return redact(git("remote", "get-url", REMOTE))


def model_of(repository: str) -> str:
    """The default name of the model: the last two parts of the repository's address."""
    path = re.sub(r"^[a-z+]+://[^/]*|^[^/:]+:", "", repository).removesuffix("/").removesuffix(".git")
    return "/".join([word for word in path.split("/") if word][-2:]) or "retriever"
