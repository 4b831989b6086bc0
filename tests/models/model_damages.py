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


TRANSFORMER: dict[str, tuple[Damage, str]] = {
    "weights cut short": (cut_short(WEIGHTS, 0.5), WEIGHTS),
    "weights of rubbish": (overwrite(WEIGHTS, b"\x93rubbish" * 999), WEIGHTS),
    "no weights": (remove(WEIGHTS), WEIGHTS),
    "a pickle": (a_pickle, "pytorch_model.bin"),
    "a pickle that runs code": (an_evil_pickle, "pytorch_model.bin"),
    "a layer's tensor is missing": (take("layer.1.attention.self.key.weight"), WEIGHTS),
    "no config": (remove("config.json"), "config.json"),
    "a config of no JSON": (overwrite("config.json", b'{"model_type": "be'), "config.json"),
    "a config nested without end": (overwrite("config.json", b"[" * 100_000), "config.json"),
    "a model type that is unknown": (change("config.json", model_type="trap"), "config.json"),
    "an activation that is unknown": (change("config.json", hidden_act="gulp"), "config.json"),
    "a width of another model": (change("config.json", hidden_size=48), "config.json"),
    "a width that heads do not divide": (change("config.json", num_attention_heads=5), "config.json"),
    "a layer too many": (change("config.json", num_hidden_layers=3), "config.json"),
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
    "a second tower that is missing": (change("stillhouse.json", towers="separate"), "query/config.json"),
}
"""Damages of a folder that Stillhouse wrote, with a projection."""
WORDS, HIDDEN = f"document/0_StaticEmbedding/{WEIGHTS}", f"document/1_Dense/{WEIGHTS}"
BAG: dict[str, tuple[Damage, str]] = {
    "words cut short": (cut_short(WORDS, 0.5), WORDS),
    "no words": (remove(WORDS), WORDS),
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
