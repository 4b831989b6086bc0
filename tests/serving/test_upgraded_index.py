"""An old index that a new retriever took over is a release of its own, whose answers are the library's."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from serving_releases import open_release, running

from stillhouse.core.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.encoder import BiEncoder
from stillhouse.search.searcher import Searcher
from stillhouse.serving.source import FolderSource

QUERY = "where does the red bird one sing"


def test_an_adopted_index_says_what_it_was_made_from(
    two_releases: list[Path], runs_of_steps: Callable[[Path], Callable[..., dict[str, Path]]], tmp_path: Path
) -> None:
    old, in_use = two_releases[0], tmp_path / "in-use"
    encoder = BiEncoder.load(old / "retriever")
    with torch.no_grad():
        encoder.tower("passage").encoder.encoder.layer[-1].output.LayerNorm.bias.add_(0.05)
    for part in ("corpus", "index"):
        shutil.copytree(old / part, in_use / part)
    with whole_folder(in_use / "retriever") as staging:
        encoder.save(staging)
        write_manifest(staging, "train-retriever", {}, {}, {})
    assert open_release(FolderSource(old)).about()["index"]["adopted"] is None
    with pytest.raises(InputError, match="was made from another retriever"):
        open_release(FolderSource(in_use))

    inputs = {name: in_use / name for name in ("corpus", "retriever")}
    inputs |= {"old_index": old / "index", "old_retriever": old / "retriever"}
    index = runs_of_steps(tmp_path / "made")("adopt-index", inputs, least_ratio=0.1)["index"]
    shutil.rmtree(in_use / "index")
    shutil.copytree(index, in_use / "index")
    parts = (in_use / part for part in ("corpus", "retriever", "index"))
    found = Searcher(*parts, Context(tmp_path, "cpu", quiet=True)).search(QUERY, 8)
    with running(in_use) as service:
        adopted = service.client.get("/info").json()["index"]["adopted"]
        hits = service.search(query=QUERY, top=8)["answers"][0]["hits"]
    assert adopted["old_index"] == read_manifest(old / "index").digest
    assert adopted.items() >= read_manifest(index).facts["adopted"].items()
    assert [hit["passage_id"] for hit in hits] == [hit.passage_id for hit in found]
    np.testing.assert_allclose([hit["score"] for hit in hits], [hit.score for hit in found], atol=1e-4)
