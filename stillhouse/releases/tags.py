"""Releases: which one is in use, which were before, and how that changes.

A release is a commit with an annotated tag `retriever@v1.2.0`. Its `release.json` lists its folders, what they were
made from and why they were accepted. The release in use, the *champion*, is named by the tag `retriever#champion#N`
with the highest N. GTO names both kinds of tags the same way. No tag is ever moved or removed: a promotion and a
rollback both add the next champion tag. Since a tag can be created only once, one of two racing promotions wins and the
other gets an error.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from stillhouse.core.artifacts import digest_json
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.core.remote.git import REMOTE, Git, GitFailed, PushTaken

NAME = "retriever"
RECORD = "release.json"
COMMITTED = ("dvc.yaml", "dvc.lock", "params.yaml", RECORD)
"""The files that a promotion commits; the rest of the branch stays unchanged."""
ATTEMPTS = 5
Version = tuple[int, int, int]


class Overtaken(InputError):
    """Another promotion or rollback came first, so this one was compared with a former champion."""


@dataclass(frozen=True)
class Release:
    """A released commit; `record` is its `release.json`."""

    version: Version
    commit: str
    record: dict[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        return "v" + ".".join(map(str, self.version))

    @property
    def tag(self) -> str:
        return f"{NAME}@{self.name}"

    @property
    def paths(self) -> dict[str, str]:
        """Where each artifact lies in the commit's workspace."""
        return {name: entry["path"] for name, entry in self.record["artifacts"].items()}

    @property
    def identity(self) -> str:
        return identity_of(self.record["artifacts"])


def identity_of(artifacts: Mapping[str, Mapping[str, str]]) -> str:
    """The digest of what is released; two releases with the same identity are the same thing."""
    return digest_json({name: entry["digest"] for name, entry in artifacts.items()})


@dataclass(frozen=True)
class History:
    """All releases, oldest first, and the champion tags, number -> release."""

    releases: list[Release]
    champions: dict[int, Release]

    @property
    def champion(self) -> Release | None:
        return self.champions[max(self.champions)] if self.champions else None

    @property
    def before(self) -> Release | None:
        """The release that was champion before the current one, which a rollback returns to.

        A rollback after a rollback goes further back: it does not return to a release that was rolled back.
        """
        used: list[Release] = []
        for number in sorted(self.champions):
            release = self.champions[number]
            tags = [other.tag for other in used]
            used = used[: tags.index(release.tag)] if release.tag in tags else used
            used.append(release)
        return used[-2] if len(used) > 1 else None

    def find(self, name: str) -> Release:
        """Finds a release by `v1.2.0`, `1.2.0` or its tag. Raises `InputError` if it does not exist."""
        for release in self.releases:
            if name in (release.name, release.name[1:], release.tag):
                return release
        there = ", ".join(release.name for release in self.releases) or "none yet"
        raise InputError(f"there is no release {name!r}; there are: {there}")


@doing("reading the releases")
def read_history(git: Git, *, fetch: bool = True) -> History:
    """Reads all releases, by default from the remote."""
    if fetch:
        git.fetch(NAME)
    releases: dict[str, Release] = {}
    for tag in git.tags(f"{NAME}@v*"):
        match = re.fullmatch(rf"{NAME}@v(\d+)\.(\d+)\.(\d+)", tag)
        if match:
            major, minor, patch = map(int, match.groups())
            releases[tag] = Release((major, minor, patch), git.commit_of(tag), _record(git, tag))
    champions = {}
    for tag, message in git.tags(f"{NAME}#champion#*").items():
        named = message.splitlines()[0] if message else ""
        number = tag.rpartition("#")[2]
        if named in releases and number.isdigit():
            champions[int(number)] = releases[named]
    return History(sorted(releases.values(), key=lambda release: release.version), champions)


def _record(git: Git, tag: str) -> dict[str, Any]:
    try:
        record = json.loads(git.read(tag, RECORD))
        assert isinstance(record["artifacts"], dict)
    except Exception:
        raise InputError(
            f"the tag {tag} has no readable {RECORD}, so `stillhouse release promote` did not make it; remove "
            f"the tag (`git push {REMOTE} :refs/tags/{tag} && git tag -d {tag}`)"
        ) from None
    return dict(record)


def next_version(history: History, bump: str) -> Version:
    """The version after the newest one; the first is 1.0.0."""
    if not history.releases:
        return (1, 0, 0)
    major, minor, patch = history.releases[-1].version
    return {"major": (major + 1, 0, 0), "minor": (major, minor + 1, 0), "patch": (major, minor, patch + 1)}[bump]


@doing("pushing the release")
def publish(git: Git, record: Mapping[str, Any], bump: str, branch: str, base: str, against: Release | None) -> Release:
    """Commits the workspace's `COMMITTED` files on top of the remote's branch and releases that commit, all at once.

    `record` is the content of `release.json`; its data must already be pushed. `base` is the commit that the files were
    made from, and `against` the champion that the challenger was compared with. Raises `Overtaken` if another release
    is champion by now, and `InputError` if the branch has other content in those files. The workspace's `release.json`
    changes only if the release is made, and its branch is where the release began.
    """
    for _ in range(ATTEMPTS):
        history = read_history(git)
        refuse_overtaken(history, against)
        head = git.commit_of(f"{REMOTE}/{branch}")
        refuse_changed(git, base, head, against, branch)
        version = next_version(history, bump)
        release = Release(version, "", dict(record))
        text = json.dumps(dict(record) | {"version": release.name}, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        message = f"Release {release.name}: {record['summary']}\n"
        commit = git.commit(head, COMMITTED, message, contents={RECORD: text})
        refs = {
            f"refs/heads/{branch}": commit,
            f"refs/tags/{release.tag}": git.tag_object(release.tag, commit, _message(release, record)),
        } | _champion_ref(git, history, release, commit)
        try:
            git.push(refs)
        except PushTaken:
            continue
        git.fetch(NAME)
        _follow(git, branch, head, commit, text)
        return Release(version, commit, dict(record) | {"version": release.name})
    raise InputError(f"the branch {branch} of {REMOTE} moved {ATTEMPTS} times in a row; repeat the command")


def _follow(git: Git, branch: str, head: str, commit: str, record: str) -> None:
    """Moves the local branch along, with `release.json`, if it is where the release began; staged changes stay staged.

    Otherwise the release's own files would block the next `git pull`.
    """
    with suppress(GitFailed, OSError):  # the release is out, whatever state this work tree is in
        if git.commit_of("HEAD") == head and git("symbolic-ref", "--short", "HEAD") == branch:
            (git.folder / RECORD).write_text(record, encoding="utf-8")
            git("update-ref", f"refs/heads/{branch}", commit, head)
            git("reset", "--quiet", "--", *COMMITTED)


@doing("putting a release back into use")
def roll_back(git: Git, to: str = "", reason: str = "") -> tuple[Release, Release]:
    """Makes an earlier release the champion again: the previous one, or the one named `to`. Returns (from, to).

    Raises `InputError` if there is nothing to go back to, and `Overtaken` if another promotion or rollback was faster.
    """
    history = read_history(git)
    champion = history.champion
    if champion is None:
        raise InputError("there is no release yet to roll back to; promote a release first")
    target = history.find(to) if to else history.before
    if target is None:
        raise InputError(
            f"{champion.name} is the only release that was in use; choose another with --to, or promote one"
        )
    if target.tag == champion.tag:
        return champion, champion
    try:
        git.push(_champion_ref(git, history, target, target.commit, f"rolled back from {champion.name}: {reason}"))
    except PushTaken:
        raise Overtaken("another promotion or rollback came first; see `stillhouse release list`") from None
    git.fetch(NAME)
    return champion, target


@doing("noting the refusal")
def note_refusal(git: Git, key: str, champion: Release, reason: str) -> None:
    """Notes in a tag that a challenger was refused, so that a schedule does not train it again and again."""
    name = f"{NAME}#refused#{key}"
    try:
        git.push({f"refs/tags/{name}": git.tag_object(name, champion.commit, reason)})
    except PushTaken:
        return  # noted before
    git.fetch(NAME)


def find_refusal(git: Git, key: str) -> str:
    """Why the challenger with this key was refused, or "" if it was not."""
    return git.tags(f"{NAME}#refused#{key}").get(f"{NAME}#refused#{key}", "")


def refused_beside(git: Git, release: Release) -> bool:
    """Whether any challenger of this release was refused, whatever its corpus."""
    return any(git.commit_of(f"refs/tags/{tag}") == release.commit for tag in git.tags(f"{NAME}#refused#*"))


def refuse_overtaken(history: History, against: Release | None) -> None:
    """Raises `Overtaken` if the champion is not the release that the challenger was compared with."""
    now = history.champion
    if (now.tag if now else "") != (against.tag if against else ""):
        assert now is not None
        raise Overtaken(
            f"{now.name} became champion meanwhile, and this challenger was compared with "
            f"{against.name if against else 'none'}; nothing was released. Repeat the command to compare it again"
        )


def refuse_changed(git: Git, base: str, head: str, against: Release | None, branch: str) -> None:
    """Refuses to overwrite what people committed to the same files since `base`, which those were made from."""
    changed = changed_files(git, base, head)
    if changed and not (against and git.commit_of(against.tag) == head):
        raise InputError(
            f"{', '.join(changed)} changed on {REMOTE}/{branch} since {base[:10]}, which this was made from; include "
            "the change (`git pull` and `dvc repro`; on a cluster `stillhouse pipeline upload refresh --recipe "
            "params.yaml`), then promote"
        )


def changed_files(git: Git, base: str, head: str) -> list[str]:
    """The files that a promotion would replace and that differ between `base` and `head`."""
    if not base or not head or base == head:
        return []
    files = [f"{git.prefix}{name}" for name in COMMITTED if name not in ("dvc.lock", RECORD)]
    changed = git("-c", "core.quotePath=false", "diff", "--name-only", base, head, "--", *[f":(top){f}" for f in files])
    return changed.splitlines()


def last_release(git: Git) -> str:
    """The commit of the newest release that precedes the checked-out commit, or "" if there is none."""
    tag = git.if_it_succeeds("describe", "--tags", "--abbrev=0", "--match", f"{NAME}@v*", "HEAD")
    return git.commit_of(tag) if tag else ""


def _champion_ref(git: Git, history: History, release: Release, commit: str, why: str = "promoted") -> dict[str, str]:
    number = max(history.champions, default=0) + 1
    name = f"{NAME}#champion#{number}"
    return {f"refs/tags/{name}": git.tag_object(name, commit, f"{release.tag}\n\n{why.rstrip(': ')}")}


def _message(release: Release, record: Mapping[str, Any]) -> str:
    """The tag's text, for people."""
    lines = [f"{NAME} {release.name}: {record['summary']}", ""]
    lines += [f"{name}: {entry['path']} {entry['digest']}" for name, entry in record["artifacts"].items()]
    if record.get("verdict"):
        lines += ["", record["verdict"]["reason"]]
    return "\n".join(lines)


def branch_of(git: Git) -> str:
    """The checked-out branch."""
    try:
        return git("symbolic-ref", "--short", "HEAD")
    except GitFailed:
        raise InputError(f"{git.folder} is not on a branch; run `git switch main`, or name one with --branch") from None
