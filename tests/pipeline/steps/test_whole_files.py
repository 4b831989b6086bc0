"""Single files that steps and tasks write appear completely or not at all, like their folders."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from stillhouse.core.artifacts import write_whole_json
from stillhouse.pipeline.steps.execute import write_report
from stillhouse.pipeline.steps.spec import Report


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("moment", ["in the middle", "before the rename"])
def test_a_disk_that_fills_up_leaves_the_old_file_or_none(
    moment: str, existing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "made" / "file"

    def write(text: str) -> None:
        write_report(path, Report(text))

    if existing:
        write("old")
    before = path.read_bytes() if existing else None

    def full(*words: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    class Half(io.TextIOWrapper):
        """Writes half of a text, and then raises an error."""

        def write(self, text: str) -> int:
            super().write(text[: len(text) // 2])
            self.flush()
            full()
            return 0

    real = Path.open
    with monkeypatch.context() as patch:
        if moment == "in the middle":
            patch.setattr(Path, "open", lambda path, mode, *_, **__: Half(real(path, f"{mode}b")))
        else:
            patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            write("new")
    assert (path.read_bytes() if path.exists() else None) == before
    assert not list(path.parent.glob(".*"))
    write("new")
    assert "new" in path.read_text() and not list(path.parent.glob(".*"))


def test_links_and_pipes_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    write_whole_json(tmp_path / "link", {"share": 0.5})
    assert (tmp_path / "link").is_symlink() and json.loads((tmp_path / "file").read_text()) == {"share": 0.5}
    end = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole_json(tmp_path / "pipe", {"share": 0.5})
    assert json.loads(os.read(end, 1000)) == {"share": 0.5} and (tmp_path / "pipe").is_fifo()
    os.close(end)
