"""What the fuzzer of `fuzz_readers` feeds: every reader, as a function of bytes, and the bytes that it begins with."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from sources_to_damage import SOURCES

from stillhouse.corpus.ingestion import Choices, ingest_source
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError
from stillhouse.retrieval.runs import read_run
from stillhouse.surfaces.recipes import configs, find_recipe, load_recipe

RUN = b"q1 Q0 a 1 2.5 s\nq1 Q0 b 2 1 s\nq2 Q0 a 1 .5 s\n"
PARAMS = find_recipe("micro").read_bytes()
SEEDS: dict[str, list[bytes]] = {
    **{name: [bytes([i]) + files[file] for i, file in enumerate(sorted(files))] for name, files in SOURCES.items()},
    "params": [PARAMS],
    "run": [RUN],
}


def read_source(name: str, data: bytes, folder: Path) -> None:
    """Ingests the source `name` with one file replaced: the first byte says which, the others are its content."""
    files = dict(SOURCES[name])
    files[sorted(files)[data[0] % len(files) if data else 0]] = data[1:]
    for file, content in files.items():
        path = folder / "source" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / "corpus").mkdir()
    format = "tables" if name == "parquet" else name
    ingest_source(open_source(str(folder / "source"), format), Choices(max_queries={}, seed=0), folder / "corpus")
    corpus = Corpus.open(folder / "corpus")
    passages = corpus.passages["passage_id"]
    assert passages.is_unique and corpus.queries["query_id"].is_unique
    assert set(corpus.qrels["passage_id"]) <= set(passages)


def read_params(data: bytes, folder: Path) -> None:
    path = folder / "params.yaml"
    path.write_bytes(data)
    configs(load_recipe(path), str(path))


def read_run_file(data: bytes, folder: Path) -> None:
    path = folder / "test.trec"
    path.write_bytes(data)
    lines = read_run(path)
    assert not lines.duplicated(["query_id", "passage_id"]).any()


def reader(name: str) -> Callable[[bytes], None]:
    """What the fuzzer calls: anything but success and `InputError` is a find."""

    def read(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            try:
                if name == "params":
                    read_params(data, folder)
                elif name == "run":
                    read_run_file(data, folder)
                else:
                    read_source(name, data, folder)
            except InputError as error:
                assert str(error)

    return read
