"""What all refresh tests need: a name for commits."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def git_identity() -> Iterator[None]:
    """A name for commits, and nothing of the configuration of who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "Stillhouse tests")
            patch.setenv(f"GIT_{role}_EMAIL", "tests@stillhouse.example")
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        patch.setenv("GIT_TEMPLATE_DIR", "")  # a repository without a dozen sample hooks
        patch.setenv("DVC_NO_ANALYTICS", "1")
        yield
