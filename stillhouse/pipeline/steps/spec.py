"""What a step declares; the command line, dvc.yaml and the Kubeflow components are derived from it.

A step module is cheap to import (no torch, pandas or faiss at the top), because every interface imports all of them:

    @dataclass(frozen=True, kw_only=True)
    class Config: ...

    def run(config, inputs, outputs, context) -> Report: ...

    STEP = Step("mine", "finds hard negatives …", Config, inputs=(...), outputs=(...), run=run)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.core.report import Report as Report

T = TypeVar("T")
Paths = Mapping[str, Path]
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
"""The name of a folder of a port that takes many."""
DIVIDED: Mapping[str, str] = {"index": "encode", "importance": "count", "score-pairs": "score-shard"}
"""The steps whose work several machines may share, and the step that does one part of it."""


def flag_of(key: str) -> str:
    """The flag of a setting, an input or an output: `--corpus`, or `--run bm25` for a port that takes many."""
    name, slash, folder = key.partition("/")
    return f"--{name.replace('_', '-')}{' ' * len(slash)}{folder}"


def named(folders: Mapping[str, T], port: str) -> dict[str, T]:
    """The values of the folders of a port that takes many, by their names, in the order given."""
    return {key.partition("/")[2]: value for key, value in folders.items() if key.startswith(f"{port}/")}


@dataclass(frozen=True)
class Port:
    """An input or output folder of a step.

    `kind` "data" is tied to the corpus that it came from: a step refuses it if it was made from something other than
    the step's other inputs. `kind` "model" works with any corpus, and may come from outside Stillhouse. `agrees_on`
    names the inputs that a data port must share with the step, if not all: negatives that another retriever mined
    belong to the same corpus. An output may belong `beside` outputs declared before it. Their digests are then recorded
    among its inputs, which ties an index to its model. An input port may take `many` folders, each with a name. The key
    of one among a step's inputs is `port/NAME` (`run/bm25`). There is at least one unless the port is optional, and
    they keep the order given. Instead of a folder, a port may take a `file` of another tool.
    """

    name: str
    help: str
    kind: str = "data"
    optional: bool = False
    agrees_on: tuple[str, ...] = ()
    many: bool = False
    beside: tuple[str, ...] = ()
    file: bool = False

    @property
    def flag(self) -> str:
        return flag_of(self.name)

    @property
    def takes(self) -> str:
        """What the command line takes, as help shows it."""
        return f"{'NAME=' * self.many}FOLDER{'|FILE' * self.file}"

    def keys(self, folders: Iterable[str]) -> list[str]:
        """The keys of this port among those of folders, in order."""
        return [key for key in folders if (key.startswith(f"{self.name}/") if self.many else key == self.name)]


CORPUS = Port("corpus", "the corpus folder")
GATE = Port("validation", "the verdict that lets the run continue", optional=True)
RETRIEVER = Port("retriever", "the bi-encoder", kind="model")
INDEX = Port("index", "its index of the corpus")
BM25_INDEX = Port("bm25", "the BM25 index from `bm25`")
RERANKER = Port("reranker", "the cross-encoder", kind="model")
SEARCHED = (CORPUS, RETRIEVER, INDEX)
TOKENS = Port("tokens", "the token arrays")
NEGATIVES = Port("negatives", "hard negatives")
CURVES = Port("curves", "training and held-out loss")
"""Folders that several steps read or write; `GATE` is the verdict of `validate`."""


@dataclass(frozen=True)
class Step:
    """A step: its name on the command line, one line of help, its settings, its folders and its function."""

    name: str
    help: str
    config: type
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    run: Callable[[Any, Paths, Paths, Context], Report]
    version: int = 1
    """Raise it when the same settings and inputs give other results, so that outputs of earlier versions are made
    again. `tests/survival/test_versions.py` notices."""
    parallel: bool = False
    """Whether several processes, started by torchrun, may work on it."""
    divided: bool = False
    """Whether it can divide its work among the processes of an engine (`stillhouse.corpus.engine`)."""

    @property
    def identifier(self) -> str:
        """The name as Python and Kubeflow write it."""
        return self.name.replace("-", "_")

    def port_of(self, key: str) -> Port:
        """The port of an input's or output's key. Raises `KeyError` where the step has none."""
        for port in (*self.inputs, *self.outputs):
            if port.keys([key]):
                return port
        raise KeyError(key)

    def argument(self, key: str, folder: str) -> tuple[str, str]:
        """The flag of a folder and its value: `--corpus`, FOLDER or `--run`, NAME=FOLDER."""
        name = key.partition("/")[2]
        return self.port_of(key).flag, f"{name}={folder}" if name else folder

    def order_of(self, folders: Mapping[str, object]) -> dict[str, list[str]]:
        """The folder names of each port that takes many, in order; manifests sort what they record."""
        given = {port.name: list(named(folders, port.name)) for port in self.inputs if port.many}
        return {name: names for name, names in given.items() if names}


@dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """The settings of a step that does one of several parts. Raises `InputError` for a part beyond the last."""

    shard: int = setting(1, "the number of this shard, from 1", minimum=1)
    shards: int = setting(1, "how many parts the corpus is divided into", minimum=1)

    def __post_init__(self) -> None:
        if self.shard > self.shards:
            raise InputError(f"there is no shard {self.shard} of {self.shards}; they are numbered from 1")
