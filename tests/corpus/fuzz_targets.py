"""The targets of the fuzzer `fuzz_readers`: every reader as a function of bytes, with the bytes to start from."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import yaml
from sources_to_damage import SOURCES, check_source, write_files

from stillhouse.core.errors import InputError
from stillhouse.evaluation.runs import read_run
from stillhouse.pipeline.recipes import configs, find_recipe, load_recipe

RUN = b"q1 Q0 a 1 2.5 s\nq1 Q0 b 2 1 s\nq2 Q0 a 1 .5 s\n"
PARAMS = find_recipe("micro").read_bytes()
ALIASES = b"index: &a {kind: flat}\nmine: &b {<<: *a}\nretriever_1: {temperature: [&c [x, x, x, x], *c, *c, *c, *c]}\n"
SEEDS: dict[str, list[bytes]] = {
    **{name: [bytes([i]) + files[file] for i, file in enumerate(sorted(files))] for name, files in SOURCES.items()},
    "params": [PARAMS, ALIASES],
    "run": [RUN],
}


def read_source(name: str, data: bytes, folder: Path) -> None:
    """Ingests the source `name` with one file replaced: the first byte says which, the others are its content."""
    files = dict(SOURCES[name])
    files[sorted(files)[data[0] % len(files) if data else 0]] = data[1:]
    write_files(files, folder / "source")
    check_source(name, folder)


def read_params(data: bytes, folder: Path) -> None:
    """Checks that every setting has its value in plain YAML, or its default."""
    path = folder / "params.yaml"
    path.write_bytes(data)
    found = configs(load_recipe(path), str(path))
    content = yaml.safe_load(data.decode()) or {}
    for name, config in found.items():
        section = content.get(name) or {}
        for field in dataclasses.fields(config):
            wanted, value = section.get(field.name, field.default), getattr(config, field.name)
            if isinstance(value, tuple):
                value, wanted = list(value), list(wanted)
            same = value == float(wanted) if type(value) is float else value == wanted and type(value) is type(wanted)
            assert same, field.name


def read_run_file(data: bytes, folder: Path) -> None:
    """Checks a run file: the lines of each query are sorted by rank, score and position, and ranked again from 1."""
    path = folder / "test.trec"
    path.write_bytes(data)
    found = read_run(path)
    of_query: dict[str, list[tuple[int, float, str]]] = {}
    for line in data.split(b"\n"):
        cells = re.split(rb"[ \t\r]+", line.strip(b" \t\r"))
        if cells != [b""]:
            query, _, passage, rank, score, _ = cells  # the other columns do not matter
            of_query.setdefault(query.decode(), []).append((int(rank), -float(score), passage.decode()))
    wanted = [
        (query, passage, number, np.float32(-score))
        for query, lines in of_query.items()
        for number, (_, score, passage) in enumerate(sorted(lines, key=lambda line: line[:2]), start=1)
    ]
    columns = [found[name].tolist() for name in ("query_id", "passage_id", "rank", "score")]
    assert list(zip(*columns)) == wanted


def reader(name: str) -> Callable[[bytes], None]:
    """Return the function that the fuzzer calls; any error other than `InputError` is a finding."""

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
