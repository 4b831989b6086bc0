"""Promotions and rollbacks in real git and DVC repositories: races, interrupted pushes, repetitions."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from repositories import ACCEPTED, PATHS, call, candidate, dvc, release

from stillhouse import cli
from stillhouse.core.errors import InputError
from stillhouse.core.remote.git import Git
from stillhouse.releases import data, promotion
from stillhouse.releases.promotion import promote
from stillhouse.releases.tags import Overtaken, read_history, roll_back

REFUSED = {"accepted": False, "reason": "the challenger is worse: 0.2 against 0.5"}


def clone(place: Path, name: str) -> Path:
    call(place, "git", "clone", "--quiet", str(place / "work.git"), str(place / name))
    return place / name


def refs(place: Path) -> set[str]:
    return set(call(place / "work.git", "git", "for-each-ref", "--format=%(refname) %(objectname)").splitlines())


def test_the_first_release_can_be_pulled_into_another_clone(place: Path, tmp_path: Path) -> None:
    """Anyone who knows only the repository's address gets the tag, dvc.lock, release.json and data."""
    outcome = release(place / "work")
    assert (outcome.kind, outcome.release.name) == ("released", "v1.0.0")
    assert call(place / "work.git", "git", "cat-file", "-t", "retriever@v1.0.0").strip() == "tag", "annotated"
    laptop = clone(place, "laptop")
    dvc(laptop, "pull")
    assert (laptop / PATHS["retriever"] / "weights.txt").read_text() == "one"
    record = json.loads((laptop / "release.json").read_text())
    assert record["version"] == "v1.0.0" and record["previous"] == "" and record["fingerprint"]
    found = data.fetch_release(Git.of(laptop), read_history(Git.of(laptop)).champion, tmp_path / "had", ("retriever",))
    assert (found["retriever"] / "weights.txt").read_text() == "one" and not (tmp_path / "had" / "corpus").exists()


def test_a_fetch_replaces_only_what_a_step_wrote(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release(place / "work")
    target = tmp_path / "mine"
    (target / "retriever").mkdir(parents=True)
    (target / "retriever" / "thesis.txt").write_text("years of work")
    fetch = ["release", "fetch", "v1.0.0", "--folder", str(place / "work"), "--target", str(target)]
    assert cli.main(fetch) == 2
    assert "retriever exists and no step wrote it; choose another folder" in capsys.readouterr().err
    assert [path.name for path in target.rglob("*")] == ["retriever", "thesis.txt"], "nothing was fetched beside it"
    (target / "retriever" / "thesis.txt").rename(target / "retriever" / "manifest.json")
    assert cli.main(fetch) == 2, "a name that others give their files too"
    (target / "retriever").rename(target / "mine")
    assert cli.main(fetch) == 0
    assert (target / "mine" / "manifest.json").read_text() == "years of work"
    (target / "mine" / "manifest.json").unlink()
    (target / "mine").rmdir()
    assert cli.main(fetch) == 0, "over what was fetched before"
    assert (target / "retriever" / "weights.txt").read_text() == "one"
    assert sorted(path.name for path in target.iterdir()) == ["corpus", "retriever"]


@pytest.mark.usefixtures("git_alone")
def test_the_branch_follows_and_other_work_stays(place: Path) -> None:
    folder = place / "work"
    (folder / "notes.txt").write_text("mine")
    call(folder, "git", "add", "notes.txt")
    staged = call(folder, "git", "diff", "--cached", "--name-only")
    release(folder)
    assert call(folder, "git", "rev-parse", "HEAD") == call(folder, "git", "rev-parse", "retriever@v1.0.0^{commit}")
    assert "release.json" not in call(folder, "git", "status", "--porcelain")
    assert call(folder, "git", "diff", "--cached", "--name-only") == staged
    assert "notes.txt" not in call(folder, "git", "ls-tree", "--name-only", "retriever@v1.0.0").split()


def test_a_worse_challenger_is_refused_and_leaves_no_trace(place: Path) -> None:
    release(place / "work")
    before, storage = refs(place), sorted((place.parent / "storage").rglob("*"))
    outcome = release(place / "work", 4, "two", REFUSED)
    assert outcome.kind == "refused" and outcome.release.name == "v1.0.0"
    assert outcome.reason == "v1.0.0 stays: the challenger is worse: 0.2 against 0.5"
    assert refs(place) == before and sorted((place.parent / "storage").rglob("*")) == storage


@pytest.mark.usefixtures("git_alone")
def test_repeated_rollbacks_go_further_back(place: Path) -> None:
    """From release 3, rollbacks go to 2, then to 1, and then fail; a new release continues from there."""
    folder = place / "work"
    for number in range(1, 4):
        release(folder, 2 + number, str(number), bump="major")
    git = Git.of(folder)
    assert [moved.name for moved in roll_back(git)] == ["v3.0.0", "v2.0.0"]
    assert [moved.name for moved in roll_back(git, reason="figures")] == ["v2.0.0", "v1.0.0"]
    with pytest.raises(InputError, match="only release that was in use"):
        roll_back(git)
    assert [moved.name for moved in roll_back(git, to="3.0.0")] == ["v1.0.0", "v3.0.0"]
    assert [moved.name for moved in roll_back(git, to="v3.0.0")] == ["v3.0.0", "v3.0.0"], "nothing to do"
    assert "rolled back from v2.0.0: figures" in call(folder, "git", "tag", "-n9", "--list", "retriever#champion#5")
    assert roll_back(git)[1].name == "v1.0.0"
    assert release(folder, 9, "nine").release.name == "v3.1.0"
    assert read_history(git).champion.name == "v3.1.0" and read_history(git).before.name == "v1.0.0"
    outcome = release(folder, 4, "2")
    assert outcome.reason.endswith("`stillhouse release rollback --to v2.0.0` makes it the champion again")
    assert not outcome.in_use


@pytest.mark.usefixtures("git_alone")
def test_of_two_racing_promotions_one_is_released(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both compare with v1 before the first one pushes. The second one fails, and compares with v1.1 if repeated."""
    release(place / "work")
    slow = candidate(clone(place, "slow"), 5, "slow")
    judged: list[str] = []

    def judge(against: Any) -> dict[str, Any]:
        judged.append(against.name)
        if len(judged) == 1:
            release(clone(place, "fast"), 4, "fast")
        return ACCEPTED

    with pytest.raises(Overtaken, match=r"v1\.1\.0 became champion meanwhile, .* compared with v1\.0\.0"):
        promote(slow, judge, recorded=False)
    assert read_history(Git.of(place / "work")).champion.record["summary"] == "4 passages, weights fast"
    assert promote(slow, judge, recorded=False).release.name == "v1.2.0"
    assert judged == ["v1.0.0", "v1.1.0"]


CUTS = {"while data are pushed": ("data", "push"), "after data, before git": ("promotion", "publish")}


@pytest.mark.parametrize("cut", CUTS)
def test_a_push_that_was_cut_off_is_repeated(cut: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release(place / "work")
    before = refs(place)
    module, name = CUTS[cut]
    owner = {"data": data, "promotion": promotion}[module]

    def killed(*words: Any, **named: Any) -> None:
        if name == "push":  # some files have arrived; DVC sends the list of a folder's files last
            cache = place / "work" / ".dvc" / "cache"
            for path in sorted(path for path in cache.rglob("*") if path.is_file() and path.suffix != ".dir")[::2]:
                arrived = place.parent / "storage" / path.relative_to(cache)
                arrived.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, arrived)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, killed)
        with pytest.raises(KeyboardInterrupt):
            release(place / "work", 4, "two")
    assert refs(place) == before, "the old release is the champion still"
    assert release(place / "work", 4, "two").release.name == "v1.1.0"
    laptop = clone(place, "laptop")
    dvc(laptop, "pull")
    assert (laptop / PATHS["retriever"] / "weights.txt").read_text() == "two"


@pytest.mark.usefixtures("git_alone")
def test_git_is_cut_off_in_the_middle_of_a_push(place: Path) -> None:
    """The connection dies after the remote took the refs: a repetition finds the work done."""
    release(place / "work")
    git = place / "bin" / "git"
    git.parent.mkdir()
    real = shutil.which("git")
    git.write_text(
        f'#!/bin/sh\nif [ "$1" = push ]; then {real} "$@"; '
        f'echo "fatal: the remote end hung up unexpectedly" >&2; exit 128; fi\nexec {real} "$@"\n'
    )
    git.chmod(git.stat().st_mode | stat.S_IXUSR)
    before = refs(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{git.parent}{os.pathsep}{os.environ['PATH']}")
        with pytest.raises(
            InputError, match=r"cannot push to the git remote .*the remote end hung up .*you can repeat"
        ):
            release(place / "work", 4, "two")
    assert refs(place) != before
    outcome = release(place / "work", 4, "two")
    assert outcome.kind == "already released" and outcome.release.name == "v1.1.0"
    assert len(read_history(Git.of(place / "work")).releases) == 2


@pytest.mark.usefixtures("git_alone")
def test_settings_that_others_changed_are_not_overwritten(place: Path) -> None:
    folder = clone(place, "work2")
    (place / "work" / "params.yaml").write_text("ingest: {}\n")
    call(place / "work", "git", "commit", "--quiet", "--all", "--message", "Settings")
    call(place / "work", "git", "push", "--quiet", "origin", "main")
    with pytest.raises(InputError, match=r"params\.yaml changed on origin/main .*git pull"):
        release(folder)


def test_a_workspace_that_is_not_whole_is_refused(place: Path) -> None:
    made = candidate(place / "work")
    data.record(made.folder)
    (made.folder / PATHS["retriever"] / "weights.txt").write_text("by hand")
    with pytest.raises(InputError, match=r"retriever in .* changed since the last run; run `dvc repro` first"):
        promote(made, lambda against: ACCEPTED)


@pytest.mark.usefixtures("git_alone")
@pytest.mark.parametrize("recorded", [True, False])
def test_a_damaged_artifact_is_not_released(recorded: bool, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk flips one bit. DVC checks only size and time and would miss it, so its check is disabled here."""
    monkeypatch.setattr(data, "refuse_unfinished", lambda folder: None)
    made, before = candidate(place / "work"), refs(place)
    weights = made.folder / PATHS["retriever"] / "weights.txt"
    content = weights.read_bytes()
    weights.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(InputError, match=r"retriever: weights\.txt changed .* run step 'train-retriever' again"):
        promote(made, lambda against: ACCEPTED, recorded=recorded)
    assert refs(place) == before
    weights.write_bytes(content)
    monkeypatch.setenv(data.REVISION, "0123abc")
    released = promote(made, lambda against: ACCEPTED, recorded=recorded).release
    assert released and {entry["revision"] for entry in released.record["artifacts"].values()} == {"0123abc"}


def test_places_without_git_remote_or_data_remote_are_refused(place: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not in a git work tree .*git init"):
        Git.of(tmp_path)
    subprocess.run(["git", "init", "--quiet", str(tmp_path / "alone")], check=True)
    with pytest.raises(InputError, match="has no remote; add one: `git remote add origin URL`"):
        Git.of(tmp_path / "alone")
    dvc(place / "work", "remote", "default", "--unset")
    with pytest.raises(InputError, match="has no DVC remote to push data to"):
        release(place / "work")
    call(place / "work", "git", "remote", "set-url", "origin", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"cannot read the git remote origin .*Is its address right"):
        release(place / "work")
