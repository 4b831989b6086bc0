"""A damaged model folder is bad input for every command that reads one: exit code 2, and the error names the file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from model_damages import BAG, HUB, OWN, TRANSFORMER, Damage
from torch import nn
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertForPreTraining

from stillhouse.core.errors import InputError
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.encoder_folder import write_towers
from stillhouse.models.encoder_settings import EncoderSettings
from stillhouse.models.source import fetch
from stillhouse.models.towers import BagOfWordsTower, TransformerTower
from stillhouse.pretraining.masked_lm import load_masked_lm

Load = Callable[[Path, Path], object]
LENGTHS = {"query_length": 16, "passage_length": 24}


@pytest.fixture(scope="module")
def made(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Undamaged model folders `hub`, `own`, `bag` and `reranker`."""
    root = tmp_path_factory.mktemp("models")
    found = {name: root / name for name in ("hub", "own", "bag", "reranker")}
    for folder in found.values():
        folder.mkdir()
    fetch(str(tiny_model), None, "mean", 16, 24, found["hub"])
    (found["hub"] / "stillhouse.json").unlink()
    torch.manual_seed(0)
    AutoModelForMaskedLM.from_pretrained(found["hub"]).save_pretrained(found["hub"])
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tower = TransformerTower(AutoModel.from_pretrained(tiny_model), "mean", nn.Linear(32, 6))
    settings = EncoderSettings("mean", projection=6, **LENGTHS)
    write_towers(found["own"], {"passage": tower}, tokenizer, settings)
    bag = BagOfWordsTower(len(tokenizer), (2, 3, 0), width=6, embedding=16, hidden=8)
    write_towers(found["bag"], {"passage": bag}, tokenizer, settings)
    CrossEncoder.start(tiny_model, max_length=24).save(found["reranker"])
    return found


LOADERS: dict[str, Load] = {
    "as an encoder": lambda folder, out: BiEncoder.load(folder),
    "as a base model": lambda folder, out: fetch(str(folder), None, None, 16, 24, out),
    "to pre-train": lambda folder, out: load_masked_lm(folder, seed=0),
    "to start a re-ranker": lambda folder, out: CrossEncoder.start(folder, max_length=24),
}
CASES = [
    *(("hub", damage, tuple(LOADERS)) for damage in TRANSFORMER.items()),
    *(("hub", damage, tuple(LOADERS)[:2]) for damage in HUB.items()),  # a re-ranker and pre-training need no pooling
    *(("own", damage, ("as an encoder",)) for damage in OWN.items()),
    *(("bag", damage, ("as an encoder",)) for damage in BAG.items()),
    *(("reranker", damage, ("as a cross-encoder",)) for damage in TRANSFORMER.items()),
]
LOADERS["as a cross-encoder"] = lambda folder, out: CrossEncoder.load(folder)


@pytest.mark.parametrize(
    ("kind", "damage", "loaders"), CASES, ids=[f"{kind}: {damage[0]}" for kind, damage, _ in CASES]
)
def test_a_damaged_model_is_refused_by_every_loader(
    kind: str, damage: tuple[str, tuple[Damage, str]], loaders: tuple[str, ...], made: dict[str, Path], tmp_path: Path
) -> None:
    folder, out = shutil.copytree(made[kind], tmp_path / "model"), tmp_path / "out"
    work, named = damage[1]
    work(folder)
    out.mkdir()
    for name in loaders:
        with pytest.raises(InputError) as error:
            LOADERS[name](folder, out)
        assert named in str(error.value), name
    assert not (tmp_path / "sprung").exists() and not list(out.iterdir())


def test_the_whole_folders_are_read(made: dict[str, Path], tmp_path: Path) -> None:
    """The damage alone causes the refusals above: every loader accepts the undamaged folder."""
    for kind in ("hub", "own", "bag"):
        assert BiEncoder.load(made[kind]).width == (32 if kind == "hub" else 6)
    assert CrossEncoder.load(made["reranker"]).max_length == 24
    assert CrossEncoder.start(made["hub"], max_length=24).max_length == 24
    assert load_masked_lm(made["hub"], seed=0).head_trained
    assert fetch(str(made["hub"]), None, None, 16, 24, tmp_path)["lm_head"] == "trained"


def test_parts_that_other_tools_omit_or_add_are_accepted(tiny_model: Path, tmp_path: Path) -> None:
    """BERT as its authors saved it: with two heads and old parameter names, and without a pooler in one case."""
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(tiny_model, tmp_path / "model")
    torch.manual_seed(0)
    BertForPreTraining.from_pretrained(tiny_model).save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    weights["bert.embeddings.position_ids"] = torch.arange(64)[None]
    renamed = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): value for name, value in weights.items()}
    renamed = {name.replace("LayerNorm.bias", "LayerNorm.beta"): value for name, value in renamed.items()}
    for state in (renamed, {name: value for name, value in renamed.items() if "pooler" not in name}):
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        encoder = BiEncoder.load(folder).tower("passage").encoder
        for name, value in AutoModel.from_pretrained(tiny_model).state_dict().items():
            if "pooler" not in name:
                assert torch.equal(encoder.state_dict()[name], value), name
        again = BiEncoder.load(folder).tower("passage").encoder  # a missing pooler is drawn alike
        assert torch.equal(again.pooler.dense.weight, encoder.pooler.dense.weight)
        assert load_masked_lm(folder, seed=0).head_trained
        CrossEncoder.start(folder, max_length=24)


def test_weights_in_several_files_are_read(tiny_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    whole = AutoModel.from_pretrained(tiny_model)
    (folder / "model.safetensors").unlink()
    whole.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    encoder = BiEncoder.load(folder).tower("passage").encoder
    for name, value in whole.state_dict().items():
        assert torch.equal(encoder.state_dict()[name], value), name
    last = max(folder.glob("model-*.safetensors"))
    last.unlink()
    with pytest.raises(InputError, match=last.name):
        BiEncoder.load(folder)


def test_a_scoring_layer_of_other_labels_is_drawn_anew(tiny_model: Path, tmp_path: Path) -> None:
    """Training a cross-encoder with one score can start from one with three classes."""
    from transformers import AutoModelForSequenceClassification

    folder = shutil.copytree(tiny_model, tmp_path / "model")
    AutoModelForSequenceClassification.from_pretrained(tiny_model, num_labels=3).save_pretrained(folder)
    assert CrossEncoder.start(folder, max_length=24).model.config.num_labels == 1
    with pytest.raises(InputError, match="no layer that gives one score per pair"):
        CrossEncoder.load(folder)


def test_feed_forward_chunks_need_not_divide_the_length(tiny_model: Path, tmp_path: Path) -> None:
    """`chunk_size_feed_forward` saves memory and changes no vector; transformers fails at other lengths."""
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | {"chunk_size_feed_forward": 5}))
    ids, mask = torch.tensor([[2, 7, 8, 3]]), torch.ones(1, 4, dtype=torch.long)
    found, expected = (BiEncoder.load(place)(ids, mask, "passage") for place in (folder, tiny_model))
    assert torch.equal(found, expected)


def test_running_out_of_memory_is_not_bad_input(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(AutoModel, "from_pretrained", full)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        BiEncoder.load(tiny_model)
