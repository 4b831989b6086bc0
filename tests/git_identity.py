"""A name for commits, without the git configuration of whoever runs the tests."""

from __future__ import annotations

import os

import pytest


def set_git_identity(patch: pytest.MonkeyPatch) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        patch.setenv(f"GIT_{role}_NAME", "Stillhouse tests")
        patch.setenv(f"GIT_{role}_EMAIL", "tests@stillhouse.example")
    patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    patch.setenv("GIT_TEMPLATE_DIR", "")  # a repository without a dozen sample hooks
    patch.setenv("DVC_NO_ANALYTICS", "1")
