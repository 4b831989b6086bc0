"""How token states become one vector, and the files by which sentence-transformers does the same.

Shape suffixes: B texts, L tokens, D hidden width.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from stillhouse.artifacts import write_json
from stillhouse.errors import InputError

POOLINGS = ("cls", "mean")
SETTINGS = "stillhouse.json"


@dataclass(frozen=True)
class EncoderSettings:
    """What an encoder folder says beside the Hugging Face files: how a text becomes a vector."""

    pooling: str = "cls"
    normalize: bool = True
    query_length: int = 32
    passage_length: int = 144


def pool(hidden_BLD: Tensor, mask_BL: Tensor, pooling: str) -> Tensor:
    """One vector a text, [B, D]: the first token's state ("cls") or the mean over the tokens that the mask keeps."""
    assert pooling in POOLINGS, pooling
    if pooling == "cls":
        return hidden_BLD[:, 0]
    weights_BL1 = mask_BL.unsqueeze(-1).to(hidden_BLD.dtype)
    return (hidden_BLD * weights_BL1).sum(1) / weights_BL1.sum(1).clamp(min=1)


def write_modules(folder: Path, width: int, settings: EncoderSettings) -> None:
    """Makes a Hugging Face model folder loadable by `SentenceTransformer(folder)` with the same vectors.

    The files keep the form that sentence-transformers reads since version 2.
    """
    kinds = ["Transformer", "Pooling"] + (["Normalize"] if settings.normalize else [])
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(zip(kinds, paths))
    ]
    write_json(folder / "modules.json", modules)
    for path in paths[1 : len(kinds)]:
        (folder / path).mkdir(exist_ok=True)
    write_json(
        folder / "1_Pooling" / "config.json",
        {
            "word_embedding_dimension": width,
            "pooling_mode_cls_token": settings.pooling == "cls",
            "pooling_mode_mean_tokens": settings.pooling == "mean",
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    )
    if settings.normalize:
        # A folder without files would be lost by tools that track files.
        write_json(folder / "2_Normalize" / "config.json", {})
    write_json(
        folder / "sentence_bert_config.json", {"max_seq_length": settings.passage_length, "do_lower_case": False}
    )
    similarity = "cosine" if settings.normalize else "dot"
    write_json(folder / "config_sentence_transformers.json", {"__version__": {}, "similarity_fn_name": similarity})
    write_json(folder / SETTINGS, asdict(settings))


def read_settings(folder: Path) -> EncoderSettings:
    """An encoder folder's settings: from `stillhouse.json`, else its sentence-transformers modules, else [CLS].

    Raises `InputError` for a pooling that Stillhouse does not know.
    """
    own = folder / SETTINGS
    if own.is_file():
        return EncoderSettings(**json.loads(own.read_text(encoding="utf-8")))
    if not (folder / "modules.json").is_file():
        return EncoderSettings()
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    by_kind = {module["type"].rsplit(".", 1)[-1]: module["path"] for module in modules}
    unknown = by_kind.keys() - {"Transformer", "Pooling", "Normalize"}
    if unknown:
        raise InputError(f"{folder}: modules {', '.join(sorted(unknown))} are not supported; use a plain encoder")
    pooling = json.loads((folder / by_kind["Pooling"] / "config.json").read_text(encoding="utf-8"))
    modes = {name.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
             for name, on in pooling.items() if name.startswith("pooling_mode_") and on is True}  # fmt: skip
    mode = pooling.get("pooling_mode") or "+".join(sorted(modes))
    if mode not in POOLINGS:
        raise InputError(f"{folder}: pooling {mode!r} is not supported; {' and '.join(POOLINGS)} are")
    return EncoderSettings(pooling=mode, normalize="Normalize" in by_kind)


def normalized(vectors_BD: Tensor) -> Tensor:
    """Vectors of length 1."""
    return torch.nn.functional.normalize(vectors_BD, dim=-1)
