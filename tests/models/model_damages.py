"""Ways to damage a complete model folder, and the file that the refusal has to name."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

Damage = Callable[[Path], object]
WEIGHTS = "model.safetensors"


def overwrite(name: str, content: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content)


def cut_short(name: str, part: float) -> Damage:
    def cut(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(part * len(data))])

    return cut


def remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def change(name: str, **values: Any) -> Damage:
    """Changes values of a JSON object; the value `...` removes a key."""

    def write(folder: Path) -> None:
        content = json.loads((folder / name).read_text()) | values
        (folder / name).write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))

    return write


def tensors(work: Callable[[dict[str, Tensor]], object], name: str = WEIGHTS) -> Damage:
    """Changes the tensors of a safetensors file in place."""

    def write(folder: Path) -> None:
        found = load_file(folder / name)
        work(found)
        save_file(found, folder / name, metadata={"format": "pt"})

    return write


def one_number(value: float, part: str, file: str = WEIGHTS) -> Damage:
    """Sets a single weight, in the first tensor with `part` in its name, to `value`."""

    def put(found: dict[str, Tensor]) -> None:
        next(tensor for name, tensor in found.items() if part in name).view(-1)[-1] = value

    return tensors(put, file)


def take(part: str) -> Damage:
    return tensors(lambda found: [found.pop(name) for name in list(found) if part in name])


def a_pickle(folder: Path) -> None:
    state = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    torch.save(state, folder / "pytorch_model.bin")


def an_evil_pickle(folder: Path) -> None:
    (folder / WEIGHTS).unlink()

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return Path.touch, (folder.parent / "sprung",)

    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))


def another_tokenizer(folder: Path) -> None:
    """The tokenizer of a model with more words."""
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["elephant"] = 10_000
    (folder / "tokenizer.json").write_text(json.dumps(content))


def a_wrong_index(folder: Path) -> None:
    """A weight index that names a file outside the folder."""
    (folder / WEIGHTS).rename(folder / "model-00001-of-00001.safetensors")
    names = load_file(folder / "model-00001-of-00001.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "../model-00001-of-00001.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


TRANSFORMER: dict[str, tuple[Damage, str]] = {
    "weights cut short": (cut_short(WEIGHTS, 0.5), WEIGHTS),
    "weights of rubbish": (overwrite(WEIGHTS, b"\x93rubbish" * 999), WEIGHTS),
    "no weights": (remove(WEIGHTS), WEIGHTS),
    "a pickle": (a_pickle, "pytorch_model.bin"),
    "a pickle that runs code": (an_evil_pickle, "pytorch_model.bin"),
    "an index out of the folder": (a_wrong_index, "model.safetensors.index.json"),
    "weights that are NaN": (one_number(float("nan"), "layer.1.output"), WEIGHTS),
    "weights that are infinite": (one_number(float("inf"), "word_embeddings"), WEIGHTS),
    "a layer's tensor is missing": (take("layer.1.attention.self.key.weight"), WEIGHTS),
    "no config": (remove("config.json"), "config.json"),
    "a config of no JSON": (overwrite("config.json", b'{"model_type": "be'), "config.json"),
    "a config nested without end": (overwrite("config.json", b"[" * 100_000), "config.json"),
    "a model type that is unknown": (change("config.json", model_type="trap"), "config.json"),
    "an activation that is unknown": (change("config.json", hidden_act="gulp"), "config.json"),
    "a width of another model": (change("config.json", hidden_size=48), "config.json"),
    "a width that heads do not divide": (change("config.json", num_attention_heads=5), "config.json"),
    "a vocabulary of another model": (change("config.json", vocab_size=999), "config.json"),
    "a layer too many": (change("config.json", num_hidden_layers=3), "config.json"),
    "a layer too few": (change("config.json", num_hidden_layers=1), "config.json"),
    "a width of ten terabytes": (change("config.json", hidden_size=1_600_000), "config.json"),
    "layers without end": (change("config.json", num_hidden_layers=1_000_000_000), "config.json"),
    "no layers": (change("config.json", num_hidden_layers=0), "config.json"),
    "sizes below zero": (change("config.json", intermediate_size=-64), "config.json"),
    "a norm that makes NaN": (change("config.json", layer_norm_eps=-1e9), "config.json"),
    "no tokenizer": (remove("tokenizer.json"), "tokenizer.json"),
    "a tokenizer cut short": (cut_short("tokenizer.json", 0.7), "tokenizer.json"),
    "a tokenizer's settings of no JSON": (overwrite("tokenizer_config.json", b"{,}"), "tokenizer_config.json"),
    "a tokenizer of another model": (another_tokenizer, "tokenizer"),
}
"""Damages of any Transformer folder with a tokenizer."""
HUB: dict[str, tuple[Damage, str]] = {
    "modules of no JSON": (overwrite("modules.json", b"not json"), "modules.json"),
    "modules without a type": (overwrite("modules.json", b'[{"path": ""}]'), "modules.json"),
    "no modules": (overwrite("modules.json", b"[]"), "modules.json"),
    "no pooling folder": (remove("1_Pooling/config.json"), "1_Pooling/config.json"),
    "a pooling that is unknown": (change("1_Pooling/config.json", pooling_mode="best"), "modules.json"),
}
"""Further damages of a folder in the format of sentence-transformers."""
DENSE = f"2_Dense/{WEIGHTS}"
OWN: dict[str, tuple[Damage, str]] = {
    "settings of no JSON": (overwrite("stillhouse.json", b"{"), "stillhouse.json"),
    "a setting that is unknown": (change("stillhouse.json", poling="cls"), "stillhouse.json"),
    "a pooling that is unknown here": (change("stillhouse.json", pooling="max"), "stillhouse.json"),
    "a length beyond numbers": (change("stillhouse.json", query_length=10**30), "query_length"),
    "a length of nothing": (change("stillhouse.json", passage_length=0), "stillhouse.json"),
    "a length beyond the model": (change("stillhouse.json", passage_length=65), "passage_length"),
    "a projection of another width": (change("stillhouse.json", projection=7), DENSE),
    "no projection": (remove(DENSE), DENSE),
    "a projection cut short": (cut_short(DENSE, 0.9), DENSE),
    "a projection of other tensors": (tensors(dict.clear, DENSE), DENSE),
    "a projection of NaN": (one_number(float("nan"), "bias", DENSE), DENSE),
    "a second tower that is missing": (change("stillhouse.json", towers="separate"), "query/config.json"),
}
"""Damages of a folder that Stillhouse wrote, with a projection."""
WORDS, HIDDEN = f"document/0_StaticEmbedding/{WEIGHTS}", f"document/1_Dense/{WEIGHTS}"
BAG: dict[str, tuple[Damage, str]] = {
    "words cut short": (cut_short(WORDS, 0.5), WORDS),
    "no words": (remove(WORDS), WORDS),
    "words of NaN": (one_number(float("nan"), "embedding", WORDS), WORDS),
    "words of another shape": (tensors(lambda found: found.update({"embedding.weight": torch.ones(4)}), WORDS), WORDS),
    "words of another tokenizer": (
        tensors(lambda found: found.update({"embedding.weight": torch.ones(5, 16)}), WORDS),
        "tokenizer",
    ),
    "a tokenizer without [CLS]": (change("tokenizer_config.json", cls_token=None), "tokenizer"),
    "a layer of another width": (
        tensors(lambda found: found.update({"linear.weight": torch.ones(8, 9)}), HIDDEN),
        HIDDEN,
    ),
    "a bias of another width": (tensors(lambda found: found.update({"linear.bias": torch.ones(7)}), HIDDEN), HIDDEN),
}
"""Damages of a bag of words."""
