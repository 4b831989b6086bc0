"""Nothing that is read can execute: no `eval`, no pickles, no code from a hub, no shell, no archive that escapes."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from stillhouse.cli import main


class Trap:
    """An object whose pickle makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


def test_a_pickle_in_the_place_of_a_checkpoint_or_array_does_not_run(tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    torch.save({"step": Trap(sprung)}, tmp_path / "checkpoint.pt")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    np.save(tmp_path / "array.npy", np.array([Trap(sprung)], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        np.load(tmp_path / "array.npy")
    assert not sprung.exists()


AUTO_MAP = {"AutoConfig": "trap.TrapConfig", "AutoModel": "trap.TrapModel", "AutoModelForMaskedLM": "trap.TrapModel"}
TRAP = "from pathlib import Path\nPath({sprung!r}).touch()\n"


@pytest.mark.parametrize("kind", ["trap", "bert"])
@pytest.mark.parametrize("answer", ["y\n", "", "n\n"])
def test_code_that_a_model_folder_brings_along_does_not_run(
    kind: str,
    answer: str,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A model type of transformers is read by transformers' code, and any other is refused. No question is asked."""
    sprung, folder = tmp_path / "sprung", shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "trap.py").write_text(TRAP.format(sprung=str(sprung)))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": kind, "auto_map": AUTO_MAP}))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer["auto_map"] = {"AutoTokenizer": [None, "trap.TrapTokenizer"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    words = [f"--model={folder}", f"--encoder={tmp_path / 'encoder'}", "--passage-length=32"]
    code = main(["fetch-model", *words])
    logged = capsys.readouterr()
    assert not sprung.exists() and not logged.out
    if kind == "bert":
        assert code == 0 and "trust_remote_code" not in (tmp_path / "encoder" / "tokenizer_config.json").read_text()
    else:
        assert code == 2 and not (tmp_path / "encoder").exists()
        [sentence] = logged.err.splitlines()
        assert str(folder / "config.json") in sentence and "custom code" in sentence
