"""A random start has a model's configuration and tokenizer, and parameters drawn by its own initialisation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel

from stillhouse.core.artifacts import digest_files
from stillhouse.core.errors import InputError
from stillhouse.models import model_place
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.source import fetch


def fetched(model: str | Path, folder: Path, seed: int | None, layers: int = 0) -> Path:
    folder.mkdir()
    facts = fetch(str(model), layers, "mean", 16, 48, folder, random_from=seed)
    assert facts["lm_head"] == "absent"
    return folder


def test_the_seed_determines_the_bytes(tiny_model: Path, tmp_path: Path) -> None:
    folders = []
    for number, seed in enumerate([7, 7, 8]):
        torch.manual_seed(number)  # earlier draws do not matter
        folders.append(fetched(tiny_model, tmp_path / str(number), seed))
    first, again, other = map(digest_files, folders)
    assert first == again
    assert {name for name in first if first[name] != other[name]} == {"model.safetensors"}


def test_the_parameters_are_those_of_the_models_own_initialisation(tiny_model: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny_model, tmp_path / "source"))
    config = json.loads((model / "config.json").read_text()) | {"initializer_range": 0.05, "dtype": "float16"}
    (model / "config.json").write_text(json.dumps(config))
    drawn = load_file(fetched(model, tmp_path / "one", 7) / "model.safetensors")
    torch.manual_seed(7)
    made = AutoModel.from_config(AutoConfig.from_pretrained(model), dtype=torch.float32).state_dict()
    assert drawn.keys() == made.keys() and all(torch.equal(drawn[name], made[name]) for name in drawn)
    # By hand: BERT draws its matrices from a normal distribution; norms begin at one and biases at zero.
    for name, values in drawn.items():
        if "LayerNorm.weight" in name or name.endswith("bias"):
            assert (values == ("LayerNorm.weight" in name)).all(), name
        elif values.numel() > 500:
            assert values.std().item() == pytest.approx(0.05, rel=0.1), name
    own = load_file(model / "model.safetensors")
    name = "encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(own[name], drawn[name])


def test_weights_are_not_fetched_from_the_hub(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def downloaded(name: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        wanted = {file for pattern in allow_patterns for file in tiny_model.glob(pattern)}
        (tmp_path / "hub").mkdir()
        for file in wanted:
            shutil.copyfile(file, tmp_path / "hub" / file.name)
        return str(tmp_path / "hub")

    monkeypatch.setattr(model_place, "snapshot_download", downloaded)
    there, here = fetched("somebody/tiny", tmp_path / "there", 7), fetched(tiny_model, tmp_path / "here", 7)
    assert digest_files(there) == digest_files(here)
    assert (tmp_path / "hub" / "config.json").is_file() and not list((tmp_path / "hub").glob("*.safetensors"))


def test_invalid_settings_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has 2 layers, so 3 cannot be kept"):
        fetched(tiny_model, tmp_path / "layers", 7, layers=3)
    BiEncoder.load(tiny_model, query_length=16, passage_length=48, towers="separate").save(tmp_path / "towers")
    with pytest.raises(InputError, match="has two towers, but random initialisation needs a single"):
        fetched(tmp_path / "towers", tmp_path / "two", 7)
    model = Path(shutil.copytree(tiny_model, tmp_path / "source"))
    config = json.loads((model / "config.json").read_text()) | {"num_attention_heads": 5}
    (model / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"config\.json cannot be read"):
        fetched(model, tmp_path / "heads", 7)
