"""An old index is upgraded part by part while clients ask: every answer is from the index it names, mixed or not."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from serving_releases import open_release, running

from stillhouse.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.context import Context
from stillhouse.errors import InputError
from stillhouse.retrieval.models.encoder import BiEncoder
from stillhouse.retrieval.search.searcher import Searcher
from stillhouse.serving.source import FolderSource

QUERIES = ["where does the red bird one sing", "which tree grows", "green fish in the tree"]
PARTS = ("corpus", "retriever", "index")


def round_scores(found: dict[str, Any]) -> list[float]:
    """Round scores more coarsely than the service and the library may differ."""
    return [round(score, 3) for hits in found.values() for _, score in hits]


def offline(folder: Path, work: Path) -> dict[str, Any]:
    searcher = Searcher(*(folder / part for part in PARTS), Context(work, "cpu", quiet=True))
    return {query: [(hit.passage_id, hit.score) for hit in searcher.search(query, 8)] for query in QUERIES}


def test_an_index_is_upgraded_while_clients_search(
    two_releases: list[Path], runs_of_steps: Callable[[Path], Callable[..., dict[str, Path]]], tmp_path: Path
) -> None:
    import torch

    old, run = two_releases[0], runs_of_steps(tmp_path / "made")
    encoder = BiEncoder.load(old / "retriever")
    with torch.no_grad():
        encoder.tower("passage").encoder.encoder.layer[-1].output.LayerNorm.bias.add_(0.05)
    in_use = tmp_path / "in-use"
    shutil.copytree(old / "corpus", in_use / "corpus")
    with whole_folder(in_use / "retriever") as staging:
        encoder.save(staging)
        write_manifest(staging, "train-retriever", {}, {}, {})
    shutil.copytree(old / "index", in_use / "index")
    assert open_release(FolderSource(old)).about()["index"]["adopted"] is None
    with pytest.raises(InputError, match="was made from another retriever"):
        open_release(FolderSource(in_use))

    inputs = {name: in_use / name for name in ("corpus", "retriever")}
    inputs |= {"old_index": old / "index", "old_retriever": old / "retriever"}
    shares = [0.0, 0.3, 0.6, 1.0]
    settings = {"least_ratio": 0.1, "precision": "fp32"}
    indexes = [run("adopt-index", inputs, f"share{share}", share=share, **settings)["index"] for share in shares]

    def place(index: Path) -> None:
        with whole_folder(in_use / "index") as staging:
            shutil.copytree(index, staging, dirs_exist_ok=True)

    place(indexes[0])
    opened = open_release(FolderSource(in_use))
    assert opened.about()["index"]["adopted"]["old_index"] == read_manifest(old / "index").digest
    expected = {opened.name: offline(in_use, tmp_path)}
    answers: list[tuple[str, Any]] = []
    over = threading.Event()
    with running(in_use, keep=1) as service:

        def ask(number: int) -> None:
            with httpx2.Client(base_url=service.url, timeout=60, trust_env=False) as client:
                while not over.is_set():
                    number += 1
                    query = QUERIES[number % len(QUERIES)]
                    answer = client.post("/search", json={"query": query, "top": 8})
                    assert answer.status_code == 200, answer.text
                    answers.append((query, answer.json()))

        clients = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
        for client in clients:
            client.start()
        try:
            for index in indexes[1:]:
                place(index)
                assert service.service.shelf.look()
                measured = read_manifest(index).facts["adopted"]
                found = service.client.get("/info").json()["index"]["adopted"]
                assert found.items() >= measured.items() and measured["encoded"] > 0
                expected[service.search(query=QUERIES[0])["release"]] = offline(in_use, tmp_path)
        finally:
            over.set()
            for client in clients:
                client.join()
    assert len(expected) == len(shares), "each share is a release of its own"
    assert len({str(round_scores(found)) for found in expected.values()}) == len(shares), "and scores in its own way"
    assert len(answers) > len(shares)
    for query, answer in answers:
        hits, found = answer["answers"][0]["hits"], expected[answer["release"]][query]
        assert [hit["passage_id"] for hit in hits] == [passage for passage, _ in found]
        np.testing.assert_allclose([hit["score"] for hit in hits], [score for _, score in found], atol=1e-4)
