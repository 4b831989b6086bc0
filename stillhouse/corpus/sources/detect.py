"""Finding out what a source is."""

from __future__ import annotations

import json
from pathlib import Path

from stillhouse.corpus.sources.article_jsonl import ARTICLE_JSONL, open_article_jsonl
from stillhouse.corpus.sources.article_tree import ARTICLE_TREE, SUFFIXES, article_paths, open_article_tree
from stillhouse.corpus.sources.built_in import SAMPLE, sample_folder
from stillhouse.corpus.sources.lines import find_file, read_lines
from stillhouse.corpus.sources.passage_jsonl import BEIR, JSONL, open_beir, open_jsonl
from stillhouse.corpus.sources.rows import Rejected, Source
from stillhouse.errors import InputError

AUTO = "auto"
OPENERS = {BEIR: open_beir, JSONL: open_jsonl, ARTICLE_TREE: open_article_tree, ARTICLE_JSONL: open_article_jsonl}
FORMATS = (AUTO, *OPENERS)


def open_source(source: str, format: str = AUTO) -> Source:
    """Opens a folder or file, or the built-in sample when `source` is "sample".

    Raises `InputError` when there is nothing there, or when it is not of the format asked for or of any known one.
    """
    assert format in FORMATS, format
    location = sample_folder() if source == SAMPLE else Path(source).expanduser()
    if not location.exists():
        raise InputError(f"the source {source} does not exist; give --source a folder, a .jsonl file or 'sample'")
    if location.is_file() and format in (BEIR, ARTICLE_TREE):
        raise InputError(f"{source} is a file, and the format {format!r} is read from a folder; give its folder")
    return OPENERS[detect(location) if format == AUTO else format](location)


def detect(location: Path) -> str:
    """The format of a folder or file, by the names in it. Raises `InputError` that lists what was looked for."""
    if location.is_file():
        if location.name.endswith((".jsonl", ".jsonl.gz")):
            return ARTICLE_JSONL if _holds_articles(location) else JSONL
    elif find_file(location, "corpus.jsonl"):
        return BEIR
    elif find_file(location, "passages.jsonl"):
        return JSONL
    elif find_file(location, "articles.jsonl"):
        return ARTICLE_JSONL
    elif article_paths(location):
        return ARTICLE_TREE
    raise InputError(
        f"{location} is no source that is known: looked for corpus.jsonl ({BEIR}), passages.jsonl or a single .jsonl "
        f"file ({JSONL}), articles.jsonl ({ARTICLE_JSONL}), each also with .gz, and for files that end in "
        f"{', '.join(SUFFIXES)} ({ARTICLE_TREE}); name the format with --format or give another --source"
    )


def _holds_articles(path: Path) -> bool:
    """Whether the first JSON object of a file has sections."""
    for line in read_lines(path, path.name):
        if isinstance(line, Rejected):
            continue
        try:
            value = json.loads(line[1])
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return "sections" in value
    return False
