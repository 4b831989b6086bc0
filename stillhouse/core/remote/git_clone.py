"""Clones a repository with the user's own git, so that keys, hosts and credential helpers are those that git uses."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import redact


def clone(repo: str, target: Path, *flags: str) -> None:
    """Clones `repo` to `target`. Raises `InputError` with what git and ssh say."""
    words = ["git", "clone", "--quiet", *flags, "--", repo, str(target)]
    environment = os.environ | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", env=environment)
    except FileNotFoundError:
        raise InputError("git is not installed here, and repositories are read with it") from None
    if done.returncode != 0:
        # What ssh says comes before git's own message; its last line is the reason.
        said, fatal, rest = redact(done.stderr).partition("fatal:")
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        why = lines[-1] if lines else f"{fatal}{rest}".strip().split("\n")[0] or "git said nothing"
        raise InputError(
            f"cannot read the repository {repo} ({why.rstrip('.')}). Is its address right, does the branch exist, and "
            "can this machine read it (key, known host, token; in a pod, the secret that git_secret names)?"
        )
