"""What all refresh tests need: a name for commits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from git_identity import set_git_identity


@pytest.fixture(autouse=True, scope="package")
def git_identity() -> Iterator[None]:
    """A name for commits, and nothing of the configuration of who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        set_git_identity(patch)
        yield
