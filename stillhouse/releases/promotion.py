"""A promotion: the challenger of a workspace becomes the champion, unless it is worse.

The order makes it safe to stop at any point and to repeat it: first the comparison, then `dvc push` (which skips what
is already there), then a single push to git of the commit and both tags, which takes effect as a whole or not at all.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.context import own_namespace
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.settings import PIPELINE, RUN
from stillhouse.core.remote.git import REMOTE, Git
from stillhouse.corpus.difference import fingerprint
from stillhouse.corpus.store import Corpus
from stillhouse.releases import data
from stillhouse.releases.tags import (
    Release,
    branch_of,
    identity_of,
    publish,
    read_history,
    refuse_changed,
    refuse_overtaken,
)

RELEASED, ALREADY, REFUSED = "released", "already released", "refused"
Compare = Callable[[Release], Mapping[str, Any]]
"""Compares the challenger with a release and returns the content of `compare-release`'s verdict.json."""


@dataclass(frozen=True)
class Candidate:
    """A workspace with a challenger: the location of its artifacts, which part of the version it raises, and how it was
    made.

    `base` is the commit that its files were made from; "" = the one that is checked out.
    """

    folder: Path
    paths: Mapping[str, str]
    bump: str
    summary: str
    facts: Mapping[str, Any]
    base: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a promotion ended (`RELEASED`, `ALREADY` or `REFUSED`), the release that it concerns, and why.

    `in_use` says whether the candidate is the champion now.
    """

    kind: str
    release: Release | None
    reason: str
    in_use: bool = False


def promote(candidate: Candidate, compare: Compare, branch: str = "", *, recorded: bool = True) -> Outcome:
    """Releases a candidate if it is not worse than the champion. Does nothing if it is already released.

    `recorded` says that `dvc repro` wrote dvc.lock; otherwise it is written here. Raises `InputError` for an incomplete
    workspace, for damaged artifacts and for remotes that cannot be written, and `Overtaken` if another promotion came
    first.
    """
    git = Git.of(candidate.folder)
    branch = branch or branch_of(git)
    history = read_history(git)
    artifacts = data.artifacts_of(candidate.folder, candidate.paths)
    for release in history.releases:
        if release.identity == identity_of(artifacts):
            in_use = history.champion is not None and history.champion.tag == release.tag
            return Outcome(ALREADY, release, _already(release, history.champion), in_use)
    against = history.champion
    if recorded:
        data.refuse_unfinished(candidate.folder)
    data.refuse_damaged(candidate.folder, candidate.paths)
    verdict = dict(compare(against)) if against else {}
    if against and not verdict["accepted"]:
        return Outcome(REFUSED, against, f"{against.name} stays: {verdict['reason']}")
    corpus = candidate.folder / candidate.paths["corpus"]
    record = {
        "summary": candidate.summary,
        "artifacts": artifacts,
        "previous": against.tag if against else "",
        "verdict": verdict,
        "fingerprint": fingerprint(Corpus.open(corpus)),
        "source": read_manifest(corpus, verify=False).facts.get("versioned", {}),
        "run": _kubeflow_run(),
    } | dict(candidate.facts)
    if not recorded:
        data.record(candidate.folder)
    base = candidate.base or git.commit_of("HEAD")
    refuse_overtaken(read_history(git), against)  # both before anything is sent
    pushed = git.commit_of(f"{REMOTE}/{branch}")
    if not pushed or git("rev-list", "--count", base, "--not", f"--remotes={REMOTE}") != "0":
        raise InputError(f"{branch} has commits that are not on {REMOTE}; run `git push -u {REMOTE} {branch}` first")
    refuse_changed(git, base, pushed, against, branch)
    data.push(candidate.folder)
    release = publish(git, record, candidate.bump, branch, base, against)
    return Outcome(RELEASED, release, verdict.get("reason", "the first release"), in_use=True)


def _kubeflow_run() -> dict[str, str]:
    """The Kubeflow run of this process; empty outside Kubeflow."""
    run = os.environ.get(RUN)
    return {"id": run, "pipeline": os.environ.get(PIPELINE, ""), "namespace": own_namespace()} if run else {}


def _already(release: Release, champion: Release | None) -> str:
    if champion and champion.tag == release.tag:
        return f"this is {release.name}, which is the champion; nothing to do"
    now = champion.name if champion else "none"
    return (
        f"this is {release.name}, and the champion is {now}; `stillhouse release rollback --to {release.name}` makes "
        "it the champion again"
    )
