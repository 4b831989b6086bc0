"""A model folder with one damaged file is read and gives finite numbers for texts, or is refused in one sentence.

`damaged` changes a field of a JSON file or of the safetensors header, because a random byte would nearly always make
the JSON invalid.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from models_to_damage import FOLDERS, PLACES
from torch import Tensor, nn

from stillhouse.pretraining.masked_lm import load_masked_lm
from stillhouse.retrieval.models.cross_encoder import CrossEncoder
from stillhouse.retrieval.models.encoder import BiEncoder
from stillhouse.retrieval.models.towers import Role

TEXTS = ["red fish swims", "", "a [MASK] fish\x00", "red " * 50]
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 10**6, 10**12, 10**30, 0.5, -1e300, float("nan"), float("inf"), "", "red",
    "gelu", "bert", "roberta", "distilbert", "mean", "../x", [], [[]], {}, {"0": 1}, [1, 2, 3],
)  # fmt: skip
"""Values that replace a field: other types, numbers out of range, and words that are valid in other fields."""
LARGE = 1e6
ROLES: tuple[Role, ...] = ("query", "passage")


def read_model_folder(data: bytes, folder: Path) -> None:
    """Loads the folder with one file replaced: the first byte says which, the others are its content."""
    kind, replaced = PLACES[data[0] % len(PLACES) if data else 0]
    for name, content in (FOLDERS[kind] | {replaced: data[1:]}).items():
        path = folder / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with torch.inference_mode():
        if kind in ("reranker", "cosine"):
            check_pairs(CrossEncoder.load(folder / "model"))
            return
        encoder = BiEncoder.load(folder / "model")
        for role in ROLES:
            texts = encoder.texts(TEXTS, role)
            vectors_BD = encoder.eval()(*texts.batch(range(len(TEXTS)), torch.device("cpu")), role)
            assert vectors_BD.shape == (len(TEXTS), encoder.width)
            check_finite(encoder, vectors_BD)
        if kind == "hub":
            check_finite(load_masked_lm(folder / "model", seed=0).model, torch.zeros(0))
            check_pairs(CrossEncoder.start(folder / "model", max_length=16))


def check_pairs(model: CrossEncoder) -> None:
    batch = model.pairs(TEXTS, TEXTS).batch(range(len(TEXTS)), torch.device("cpu"))
    scores_P: Tensor = model.eval()(*batch)
    assert scores_P.shape == (len(TEXTS),)
    check_finite(model, scores_P)


def check_finite(model: nn.Module, made: Tensor) -> None:
    """All weights are finite, and so are the results for texts, unless a weight is so large that sums overflow."""
    for name, value in model.state_dict().items():
        assert value.isfinite().all(), name
    if all(value.abs().max() < LARGE for value in model.state_dict().values()):
        assert made.isfinite().all()


def damaged(data: bytes, seed: int, otherwise: Callable[[bytes], bytes]) -> bytes:
    """Return other data: with a changed JSON field or weight, or whatever `otherwise` returns."""
    chance = random.Random(seed)
    mark, content = data[:1], data[1:]
    if not mark or chance.random() < 0.3:
        return otherwise(data)
    size = struct.unpack("<Q", content[:8])[0] if len(content) > 8 else 0
    if 0 < size <= len(content) - 8:  # safetensors: the length of the JSON header, the header, the numbers
        header, numbers = content[8 : 8 + size], bytearray(content[8 + size :])
        if numbers and chance.random() < 0.5:
            place = chance.randrange(len(numbers) // 4 or 1) * 4
            numbers[place : place + 4] = struct.pack("<f", chance.choice([float("nan"), float("inf"), 3e38, 0, -1e-40]))
        else:
            header = with_a_field_changed(header, chance)
        return mark + struct.pack("<Q", len(header)) + header + bytes(numbers)
    return mark + with_a_field_changed(content, chance)


def with_a_field_changed(content: bytes, chance: random.Random) -> bytes:
    """JSON with one value changed, removed or renamed; any other content unchanged."""
    try:
        value = json.loads(content)
        places = list(fields(value))
    except (ValueError, RecursionError):
        return content
    if not places:
        return json.dumps(chance.choice(ODD)).encode()
    holder, key = chance.choice(places)
    action = chance.random()
    if action < 0.15:
        del holder[key]
    elif action < 0.25 and isinstance(holder, dict):
        holder[f"{key}x"] = holder.pop(key)
    elif action < 0.45 and type(holder[key]) is int:
        holder[key] += chance.choice([-1, 1])
    else:
        holder[key] = chance.choice(ODD)
    return json.dumps(value).encode()


def fields(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a JSON value: the list or object, and the index or key in it."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        yield value, key
        yield from fields(value[key])
