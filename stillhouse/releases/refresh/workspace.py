"""The workspace of a refresh: a clone of the release repository, with the champion's artifacts in it."""

import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from stillhouse.core.artifacts import digest_in
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.core.remote.address import redact, refuse_secret
from stillhouse.core.remote.git import REMOTE, Git, GitFailed, clone
from stillhouse.pipeline.dvc_file import HEADER, Indented
from stillhouse.pipeline.graph import ARTIFACTS, GraphStep
from stillhouse.pipeline.step_command import command_of
from stillhouse.pipeline.workspace import write_settings
from stillhouse.releases.data import fetch_release
from stillhouse.releases.refresh.graph import CHAMPION
from stillhouse.releases.tags import Release, branch_of

MARK = Path(".git") / "stillhouse-refresh"
"""The file that marks a clone as made by a refresh, so that changes in it are the refresh's own."""


@doing("updating the clone")
def open_clone(repo: str, branch: str, folder: Path) -> Git:
    """Clones `repo` into `folder` at the newest commit of its branch, or updates an earlier clone there.

    Keeps the artifacts of an earlier run that was killed, so that it can resume. Raises `InputError` for a repository
    that cannot be read, and for a folder that no refresh made.
    """
    refuse_secret(repo, "the repository of the releases")
    local = Path(repo).expanduser()
    address = str(local.resolve()) if local.is_dir() else repo
    if (local / ".git").exists() and (remote := Git(local).if_it_succeeds("remote", "get-url", REMOTE)):
        # Git takes no push into a work tree.
        address = str((local / remote).resolve()) if (local / remote).is_dir() else remote
    if not folder.exists() or not any(folder.iterdir()):
        return _clone(address, branch, folder)
    if not (folder / MARK).is_file():
        raise InputError(
            f"{folder} was not made by a refresh, and a refresh discards all changes in its folder; choose another "
            "one with --folder: the refresh clones everything that is committed and pushed into it"
        )
    # The locks of a git that was killed. Nobody else works in a folder that is a refresh's own.
    for lock in (*(folder / ".git").glob("*.lock"), *(folder / ".git" / "refs").rglob("*.lock")):
        lock.unlink(missing_ok=True)
    git = Git.of(folder)
    cloned = git("remote", "get-url", REMOTE)
    if cloned != address:
        raise InputError(f"{folder} is a clone of {redact(cloned)}; choose another folder with --folder")
    git.fetch("retriever")
    branch = branch or branch_of(git)
    try:
        git("checkout", "--quiet", "--force", "-B", branch, f"{REMOTE}/{branch}")
    except GitFailed as error:
        raise InputError(f"{repo} has no branch {branch!r} ({error.last})") from None
    return git


@doing("cloning the repository")
def _clone(address: str, branch: str, folder: Path) -> Git:
    """Makes a clone that is marked as a refresh's own, completely or not at all."""
    folder = folder.absolute()
    if folder == Path.cwd():
        raise InputError("a refresh cannot work in the current folder itself; choose a folder in it with --folder")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a refresh that was killed
    partial.parent.mkdir(parents=True, exist_ok=True)
    clone(address, partial, *(["--branch", branch] if branch else []))
    (partial / MARK).touch()
    try:
        partial.rename(folder)
    except OSError as error:
        shutil.rmtree(partial)
        raise InputError(
            f"{folder} cannot be replaced ({error.strerror}); choose a folder in it with --folder"
        ) from None
    return Git.of(folder)


@doing("bringing the artifacts of the champion")
def bring_champion(git: Git, champion: Release, names: Collection[str] = ()) -> None:
    """Puts the champion's artifacts, or only `names`, into `artifacts/champion`.

    Artifacts that are already there are not fetched again.
    """
    target = git.folder / ARTIFACTS / CHAMPION
    released = champion.record["artifacts"]
    wanted = {name: entry["digest"] for name, entry in released.items() if not names or name in names}
    missing = tuple(name for name, digest in wanted.items() if digest_in(target / name) != digest)
    if missing:
        fetch_release(git, champion, target, missing)
    for name in missing:
        if digest_in(target / name) != wanted[name]:
            raise InputError(
                f"{name} of {champion.name} is not what was released: its data were changed on the remote; roll back "
                "to another release (`stillhouse release rollback`)"
            )


def write_stages(folder: Path, steps: tuple[GraphStep, ...], champion: Release) -> None:
    """Writes dvc.yaml: one stage that fetches the champion, and one for each step, as it ran here."""
    (folder / "dvc.lock").unlink(missing_ok=True)  # it holds the stages of the champion
    write_settings(folder, {step.section: {} for step in steps})  # DVC needs every section that a stage names
    places = {name: f"{ARTIFACTS}/{CHAMPION}/{name}" for name in champion.paths}
    fetched: dict[str, Any] = {
        "cmd": f"stillhouse release fetch {champion.name} --target {ARTIFACTS}/{CHAMPION}",
        "outs": list(places.values()),
    }
    stages = {CHAMPION: fetched} | {step.name: _stage(step) for step in steps}
    text = HEADER + yaml.dump({"stages": stages}, sort_keys=False, width=1000, Dumper=Indented)
    (folder / "dvc.yaml").write_text(text, encoding="utf-8")


def _stage(step: GraphStep) -> dict[str, Any]:
    """A stage of dvc.yaml with the command of one step, which needs no graph of this refresh."""
    inputs, outputs = ([path.as_posix() for path in of().values()] for of in (step.input_paths, step.output_paths))
    return {
        "cmd": " ".join(command_of(step)),
        "params": [step.section],
        "deps": list(dict.fromkeys(inputs)),
        "outs": outputs,
    }
