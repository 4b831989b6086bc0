"""Whole runs replace corpus, retriever and index while a search is open: every answer is from one version.

The versions have the same passage ids but other texts and vectors, so no other check would notice a mixture.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from indexed_corpora import FP32, write_corpus

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.core.open_folders import OpenFolders
from stillhouse.corpus.store import Corpus
from stillhouse.models.encoder import BiEncoder
from stillhouse.search import searcher as search
from stillhouse.search.searcher import Hit, Searcher

NAMES = ("corpus", "retriever", "index")
QUESTIONS = ("where does the red bird one sing", "which tree grows", "two green fish")


@dataclasses.dataclass
class Place:
    """The folder that a run writes to. `install` puts one of two versions there, as a repeated run does."""

    folder: Path
    versions: list[Path]
    answers: list[dict[str, list[Hit]]]

    def install(self, version: int, name: str) -> None:
        with whole_folder(self.folder / name) as staging:
            shutil.copytree(self.versions[version] / name, staging, dirs_exist_ok=True)

    def install_all(self, version: int) -> None:
        for name in NAMES:
            self.install(version, name)

    def open(self) -> Searcher:
        return opened(self.folder)


def opened(folder: Path) -> Searcher:
    corpus, retriever, index = (folder / name for name in NAMES)
    return Searcher(corpus, retriever, index, Context(folder / "work", "cpu", quiet=True))


def answers(searcher: Searcher) -> dict[str, list[Hit]]:
    return {question: searcher.search(question, 5) for question in QUESTIONS}


@pytest.fixture(scope="module")
def versions(
    tmp_path_factory: pytest.TempPathFactory,
    runs_of_steps: Callable[[Path], Callable[..., dict[str, Path]]],
    tiny_model: Path,
    small_corpus: Path,
) -> list[Path]:
    """Return the artifacts of two runs. The second has the texts of the first in reverse order under the same ids."""
    made = []
    for number in range(2):
        root = tmp_path_factory.mktemp(f"version{number}")
        passages = Corpus.open(small_corpus).passages.copy()
        if number:
            passages[["title", "text"]] = passages[["title", "text"]].to_numpy()[::-1]
        corpus = write_corpus(root / "corpus", {"passages": pd.DataFrame(passages)})
        settings = {"model": str(tiny_model), "pooling": "mean", "query_length": 16, "passage_length": 24}
        run = runs_of_steps(root / "steps")
        encoder = run("fetch-model", {}, **settings)["encoder"]
        with torch.no_grad():
            model = BiEncoder.load(encoder)
            torch.manual_seed(number)
            for weights in model.parameters():
                weights += 0.1 * number * torch.randn_like(weights)
        with whole_folder(root / "retriever") as staging:
            model.save(staging)
            if number:  # our own model folders are read in another way than those of others
                write_manifest(staging, "train-retriever", {}, {}, {})
        index = run("index", {"corpus": corpus, "retriever": root / "retriever"}, **FP32)["index"]
        shutil.copytree(index, root / "index")
        made.append(root)
    return made


@pytest.fixture
def place(versions: list[Path], tmp_path: Path) -> Place:
    found = Place(tmp_path / "artifacts", versions, [answers(opened(folder)) for folder in versions])
    first, second = found.answers
    for question in QUESTIONS:
        assert {hit.passage_id: hit.text for hit in first[question]} != {h.passage_id: h.text for h in second[question]}
    found.install_all(0)
    return found


def test_an_open_search_answers_from_the_version_that_it_opened(place: Place) -> None:
    searcher = place.open()
    for name in NAMES:
        place.install(1, name)
        assert answers(searcher) == place.answers[0]
    assert answers(place.open()) == place.answers[1]
    place.install_all(0)
    for name in NAMES:
        shutil.rmtree(place.folder / name)
    assert answers(searcher) == place.answers[0]


@pytest.mark.parametrize("moment", ["refuse_unfit", "open_query_encoder", "VectorIndex", "check_index", "check_width"])
def test_what_was_verified_is_what_is_read(place: Place, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Another run ends before or after each part of opening, for example between the digests and the reading."""
    original = getattr(search, moment)

    def swapped(*words: object, **named: object) -> object:
        place.install_all(1)
        result = original(*words, **named)
        place.install_all(0)
        place.install_all(1)
        return result

    monkeypatch.setattr(search, moment, swapped)
    assert answers(place.open()) == place.answers[0]


def test_folders_that_are_replaced_one_after_the_other_are_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The corpus is from one version and the index from the other."""
    hold = OpenFolders._hold

    def swapped(held: OpenFolders, folder: Path, into: Path, opened: object) -> None:
        hold(held, folder, into, opened)  # type: ignore[arg-type]
        if folder.name == "corpus":
            place.install_all(1)

    monkeypatch.setattr(OpenFolders, "_hold", swapped)
    with pytest.raises(InputError, match="index was made from another corpus"):
        place.open()


def test_a_file_that_is_overwritten_in_its_place_is_refused(place: Place) -> None:
    """`cp` does this, but none of our steps: the open file itself changes."""
    searcher = place.open()
    passages = place.folder / "corpus" / "passages.parquet"
    passages.write_bytes((place.versions[1] / "corpus" / "passages.parquet").read_bytes())
    with pytest.raises(InputError, match=f"{passages}.* (overwritten|damaged)"):
        searcher.search(QUESTIONS[0], 5)
