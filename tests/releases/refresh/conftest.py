"""The fixture of all refresh tests: a name for commits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from git_identity import set_git_identity


@pytest.fixture(autouse=True, scope="package")
def git_identity() -> Iterator[None]:
    """Set a name for commits, and ignore the git configuration of the user who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        set_git_identity(patch)
        yield
