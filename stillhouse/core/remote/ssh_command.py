"""Makes DVC reach git repositories with the `ssh` command that git itself would run.

DVC opens a repository with dulwich. Dulwich clones with `$GIT_SSH_COMMAND`, but lists the references of a remote only
with `core.sshCommand`, which it reads from files and not from the environment variables that git accepts.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from stillhouse.core.environment_variables import environment_variables

SSH_COMMAND = "GIT_SSH_COMMAND"
USERS_FILE = "GIT_CONFIG_GLOBAL"
"""Environment variable that names the file that git and dulwich read instead of those in the user's home."""


@contextmanager
def same_ssh_as_git() -> Iterator[None]:
    """Makes `$GIT_SSH_COMMAND`, if set, dulwich's `core.sshCommand` while the block runs.

    The setting goes into a temporary file that includes the user's own files, so that their other settings still apply
    and nothing is written into the user's home. As in git, the variable overrides `core.sshCommand` in those files.
    Needs dulwich, which comes with DVC.
    """
    command = os.environ.get(SSH_COMMAND)
    if not command:
        yield
        return
    from dulwich.config import ConfigFile

    config = ConfigFile()
    for file in _users_files():
        config.add("include", "path", os.fsencode(file))
    config.set("core", "sshCommand", os.fsencode(command))
    with TemporaryDirectory() as place:
        file = Path(place) / "gitconfig"
        config.write_to_path(os.fspath(file))
        with environment_variables({USERS_FILE: str(file)}):
            yield


def refusal_by_git(repo: str) -> str:
    """The message of `ssh` if git itself cannot read a repository, without git's own message after it.

    Empty if git can read the repository, or does not answer within a minute.
    """
    environment = os.environ | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    words = ["git", "ls-remote", "--quiet", "--", repo, "HEAD"]
    try:
        done = subprocess.run(
            words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr.partition("fatal:")[0].strip() if done.returncode else ""


def _users_files() -> list[Path]:
    """The user's git configuration files that exist, in the order in which git reads them."""
    if USERS_FILE in os.environ:
        files = [Path(os.environ[USERS_FILE])]
    else:
        shared = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
        files = [shared / "git" / "config", Path("~/.gitconfig").expanduser()]
    return [file.absolute() for file in files if file.is_file()]
