"""Steps that cannot share their work refuse to run in several processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stillhouse.core.errors import InputError


def test_other_steps_refuse_several_processes(
    run_step: Callable[..., dict[str, Path]], small_corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="start it without torchrun"):
        run_step("bm25", {"corpus": small_corpus}, "made")
    assert not (tmp_path / "made").exists()
