"""Token arrays of a corpus from several processes: each tokenizes some passages, then their files are joined."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from stillhouse.core.artifacts import digest_json, write_json
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.cleaning_parts import part_folder
from stillhouse.corpus.sources.rows import Each
from stillhouse.corpus.store import Corpus
from stillhouse.models.tokenizer_files import load_tokenizer
from stillhouse.pretraining.token_files import open_files, write_tokens

TEXTS_AT_ONCE = 2048
_COPIED = 1 << 20


@dataclass(frozen=True)
class TokenSettings:
    """The corpus, the tokenizer and the settings with which a process tokenizes."""

    corpus: Path
    tokenizer: Path
    max_length: int
    language: str


def blocks_of(corpus: Corpus, rows: range | None = None) -> Iterator[pd.DataFrame]:
    """The input of `write_tokens` for all passages, or for some rows."""
    columns = ("title", "text", *(("passage_id",) if corpus.not_prose else ()))
    return corpus.passage_blocks(*columns, rows=TEXTS_AT_ONCE, among=None if rows is None else np.array(rows))


def write_token_parts(
    folder: Path,
    settings: TokenSettings,
    work: Path,
    each: Each,
    rows: int,
    watch: Callable[[Iterator[Any], int], Iterator[Any]] = lambda results, count: results,
) -> dict[str, int]:
    """Write the files of `write_tokens` for a whole corpus and return its counts; a part has `rows` passages.

    Parts are in `work`, which all processes share; parts finished by an earlier run are reused. Each process, including
    this one, holds one block of tokens in memory.
    """
    count = Corpus.open(settings.corpus).passage_count
    root = work / f"tokens-{digest_json([rows, count])[:20]}"
    root.mkdir(parents=True, exist_ok=True)
    parts = [(f"{begin:010}", range(begin, min(begin + rows, count))) for begin in range(0, count, rows)]
    counts: dict[str, int] = dict.fromkeys(("passages", "tokens", "truncated", "sentences"), 0)
    for found in watch(each(partial(_write_part, root, settings), parts), len(parts)):
        counts = {name: counts[name] + found[name] for name in counts}
    with doing("joining the tokens"):
        _join(folder, [root / name for name, _ in parts])
    return counts


def copied(settings: TokenSettings, work: Path) -> TokenSettings:
    """Copy the corpus and the tokenizer to `work`, where processes on other machines can read them."""
    found = {"corpus": settings.corpus, "tokenizer": settings.tokenizer}
    with doing("copying the corpus to the work area"):
        for name, folder in found.items():
            if not (work / name).is_dir():
                with part_folder(work / name) as staging:
                    shutil.copytree(folder, staging, dirs_exist_ok=True)
    return replace(settings, corpus=work / "corpus", tokenizer=work / "tokenizer")


def _write_part(root: Path, settings: TokenSettings, part: tuple[str, range]) -> dict[str, int]:
    name, rows = part
    folder = root / name
    if not folder.is_dir():
        with part_folder(folder) as staging:
            corpus = Corpus.open(settings.corpus)
            counts = write_tokens(
                staging,
                blocks_of(corpus, rows),
                _tokenizer(settings.tokenizer),
                settings.max_length,
                settings.language,
                corpus.titles,
                corpus.not_prose.keys(),
            )
            write_json(staging / "counts.json", counts)
    found: dict[str, int] = json.loads((folder / "counts.json").read_text(encoding="utf-8"))
    return found


_tokenizer = lru_cache(maxsize=1)(load_tokenizer)


def _join(folder: Path, parts: list[Path]) -> None:
    with ExitStack() as stack:
        files = open_files(folder, stack)
        files["offsets"].append(np.zeros(1, np.int64))
        for part in parts:
            before = files["ids"].length
            for name, file in files.items():
                array = np.load(part / f"{name}.npy", mmap_mode="r")
                if name == "offsets":
                    array = array[1:]
                for begin in range(0, len(array), _COPIED):
                    piece = array[begin : begin + _COPIED]
                    file.append(piece + before if name == "offsets" else piece)
