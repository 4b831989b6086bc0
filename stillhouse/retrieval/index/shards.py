"""Embeddings of a corpus in shards: each is encoded separately, and the index step reads all of them.

A shard is a folder that the step `encode` writes: one segment (`embeddings.py`) of the passages `shard_rows`, and a
manifest.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillhouse.arrays import save_array
from stillhouse.artifacts import MANIFEST, Manifest, read_manifest
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.errors import InputError
from stillhouse.retrieval.index.embeddings import DIGEST, TEXTS, VECTORS, Embeddings
from stillhouse.retrieval.index.exact_search import BLOCK

NAME = "passages"
STEP = "encode"


def shard_rows(passages: int, shard: int, shards: int) -> NDArray[np.int64]:
    """The rows of shard 1, 2 .. `shards`: consecutive parts of the corpus, as equal in size as possible."""
    return np.arange(passages * (shard - 1) // shards, passages * shard // shards)


def write_shard(
    folder: Path, embeddings: Embeddings, digests_S: NDArray[np.bytes_], passage_ids: PassageIds, first: int
) -> None:
    """Write `passages.vectors.npy` (float32 [S, D]), `passages.texts.npy` (digests) and `ids.parquet`, aligned.

    `passage_ids` are the ids of the whole corpus, and `first` is the row of the shard's first passage.
    """
    assert digests_S.dtype == DIGEST and len(digests_S) == len(embeddings)
    with (folder / f"{NAME}{VECTORS}").open("wb") as file:
        shape = (len(embeddings), embeddings.width)
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for _, vectors_BD in embeddings.blocks(BLOCK):
            file.write(vectors_BD.astype("<f4").tobytes())
    save_array(folder / f"{NAME}{TEXTS}", digests_S)
    passage_ids.write(folder / "ids.parquet", first, first + len(embeddings))


def find_shards(folder: Path, corpus: str, model: str) -> list[Path]:
    """The folders of all shards by number: `folder` is the only one, or each of its folders is a shard.

    The shards must come from the corpus with the digest `corpus` and the model with the `model_key` `model`. Raises
    `InputError` for a shard that is missing, appears twice, or was made from something else.
    """
    folders = [folder] if (folder / MANIFEST).is_file() else sorted(path for path in folder.iterdir() if path.is_dir())
    manifests = {path: read_manifest(path) for path in folders}
    if not manifests:
        raise InputError(f"{folder} has no vectors; `stillhouse {STEP}` writes a folder for each shard")
    for path, manifest in manifests.items():
        _refuse_foreign(path, manifest, corpus, model)
    shards = {int(manifest.facts["shards"]) for manifest in manifests.values()}
    if len(shards) > 1:
        raise InputError(f"{folder} mixes divisions into {' and '.join(map(str, sorted(shards)))} shards; keep one")
    by_number: dict[int, Path] = {}
    for path, manifest in manifests.items():
        number = int(manifest.facts["shard"])
        if number in by_number:
            raise InputError(f"shard {number} appears twice, in {by_number[number]} and {path}; remove one")
        by_number[number] = path
    missing = [str(number) for number in range(1, shards.pop() + 1) if number not in by_number]
    if missing:
        raise InputError(f"{folder} lacks shard {', '.join(missing)}; run `stillhouse {STEP}` for it")
    return [by_number[number] for number in sorted(by_number)]


def _refuse_foreign(path: Path, manifest: Manifest, corpus: str, model: str) -> None:
    if manifest.step != STEP:
        raise InputError(f"{path} was written by step '{manifest.step}'; give folders of `stillhouse {STEP}`")
    if manifest.inputs["corpus"] != corpus:
        raise InputError(f"{path} was encoded from another corpus; run `stillhouse {STEP}` again with this one")
    if manifest.facts["model"] != model:
        raise InputError(
            f"{path} was encoded by another model, or in another precision; run `stillhouse {STEP}` again with this one"
        )
