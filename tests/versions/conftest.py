"""What all tests of versions need: a name for commits."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def git_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name for commits, and nothing of the configuration of who runs the tests."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Stillhouse tests")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "tests@stillhouse.example")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_TEMPLATE_DIR", "")  # a repository without a dozen sample hooks
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
