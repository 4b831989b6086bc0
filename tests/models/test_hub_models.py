"""A name on the Hugging Face hub is read like the same files in a folder, from the hub's own cache."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import huggingface_hub.constants
import pytest

from stillhouse.core.artifacts import digest_files
from stillhouse.core.errors import InputError
from stillhouse.models.model_place import place_of
from stillhouse.models.source import fetch

REVISION = "0123456789012345678901234567890123456789"


@pytest.fixture
def snapshot(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of `somebody/tiny`, a sentence-transformers model with mean pooling, as the hub's cache holds them."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "cache" / "models--somebody--tiny"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(REVISION)
    folder = shutil.copytree(tiny_model, model / "snapshots" / REVISION)
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path}
               for kind, path in (("Transformer", ""), ("Pooling", "1_Pooling"))]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return folder


def test_a_hub_name_gives_the_same_model_as_its_files(snapshot: Path, tmp_path: Path) -> None:
    found = []
    for number, name in enumerate(["somebody/tiny", str(snapshot)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        facts = fetch(name, None, None, 16, 48, folder)
        assert facts["pooling"] == "mean", "as the model's own modules say"
        found.append(digest_files(folder))
    assert found[0] == found[1]


def test_a_damaged_file_in_the_hub_cache_is_named(snapshot: Path, tmp_path: Path) -> None:
    (snapshot / "model.safetensors").write_bytes(b"cut short")
    with pytest.raises(InputError, match=r"model\.safetensors"):
        fetch("somebody/tiny", None, None, 16, 48, tmp_path)


def test_an_unknown_hub_name_is_named(tmp_path: Path, snapshot: Path) -> None:
    with pytest.raises(InputError, match="the model 'somebody/else' cannot be loaded"):
        fetch("somebody/else", None, None, 16, 48, tmp_path)


def test_a_router_of_the_hub_is_found_without_a_configuration_of_its_own(snapshot: Path) -> None:
    assert place_of("somebody/tiny") == snapshot
    (snapshot / "config.json").unlink()
    assert place_of("somebody/tiny") == snapshot
    (snapshot / "modules.json").unlink()
    assert place_of("somebody/tiny") is None
