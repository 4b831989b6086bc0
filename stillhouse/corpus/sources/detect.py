"""Detects the format of a source and opens it."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources import article_tree
from stillhouse.corpus.sources.article_tree import ARTICLE_TREE, HTML_TREE, tree_files, walk
from stillhouse.corpus.sources.dpr import DPR, open_dpr, passage_files
from stillhouse.corpus.sources.evaluator_json import EVALUATOR_JSON, evaluator_files, open_evaluator_json
from stillhouse.corpus.sources.ir_datasets_id import IR_DATASETS, SCHEME, open_ir_datasets
from stillhouse.corpus.sources.json_files import beginning
from stillhouse.corpus.sources.jsonl import ARTICLE_JSONL, BEIR, JSONL, open_article_jsonl, open_beir, open_jsonl
from stillhouse.corpus.sources.lines import Fields, find_file, read_objects
from stillhouse.corpus.sources.msmarco import MSMARCO, find_collection, label_files, open_msmarco
from stillhouse.corpus.sources.options import AUTO, SAMPLE, Options, sample_folder
from stillhouse.corpus.sources.reqa import REQA, open_reqa
from stillhouse.corpus.sources.rows import Source
from stillhouse.corpus.sources.squad_json import SQUAD, open_squad, squad_paths
from stillhouse.corpus.sources.table_columns import SUFFIXES as TABLE_SUFFIXES
from stillhouse.corpus.sources.table_columns import files_of, find_tables, suffix_of
from stillhouse.corpus.sources.tables import TABLES, open_tables, refuse_unnamed
from stillhouse.corpus.sources.text_encoding import is_unicode
from stillhouse.corpus.sources.training import TRAINING, open_training, training_files

OPENERS: dict[str, Callable[[Path, Options], Source]] = {
    BEIR: open_beir,
    JSONL: open_jsonl,
    ARTICLE_TREE: article_tree.open_article_tree,
    ARTICLE_JSONL: open_article_jsonl,
    HTML_TREE: partial(article_tree.open_article_tree, format=HTML_TREE, suffixes=article_tree.PAGES),
    SQUAD: open_squad,
    EVALUATOR_JSON: open_evaluator_json,
    DPR: open_dpr,
    MSMARCO: open_msmarco,
    REQA: open_reqa,
    TABLES: open_tables,
    TRAINING: lambda location, _: open_training(location),
}
FORMATS = (AUTO, *OPENERS, IR_DATASETS)
OF_FILES = (JSONL, ARTICLE_JSONL, ARTICLE_TREE, SQUAD, EVALUATOR_JSON, TABLES, TRAINING)
"""The formats that a single file may have."""
TREES, ABOUT = (ARTICLE_TREE, HTML_TREE), ("readme", "manifest", "rejected")
"""The formats of a tree of files, and the names of files about a data set or a corpus."""
UNLABELLED = (BEIR, JSONL, ARTICLE_JSONL, TABLES)
"""The formats whose folders may lack labels."""
OPTIONS_OF = {"columns": (TABLES,), "fields": (*UNLABELLED, *TREES), "reqa_split": (REQA,)}
"""The formats that read each of the `Options`."""


def open_source(source: str, format: str = AUTO, options: Options | None = None) -> Source:
    """Opens a folder or file, the built-in sample if `source` is "sample", or a dataset "ir_datasets:<id>".

    Raises `InputError` if the source does not exist, if it does not have the requested format or any known one, and for
    an option that its format does not use.
    """
    options = options or Options()
    opened = _open(source, format, options)
    for name, formats in OPTIONS_OF.items():
        if getattr(options, name) != getattr(Options(), name) and opened.format not in formats:
            raise InputError(
                f"{name} is for {' and '.join(formats)}, and {source} is read as {opened.format}; leave it out"
            )
    return opened


def _open(source: str, format: str, options: Options) -> Source:
    if source.startswith(SCHEME):
        if format not in (AUTO, IR_DATASETS):
            raise InputError(f"{source} is not a {format!r} source; leave the format out")
        return open_ir_datasets(source)
    if format == IR_DATASETS:
        raise InputError(f"the source {source} is not a dataset of ir_datasets; write it as {SCHEME}<id>")
    location = sample_folder() if source == SAMPLE else Path(source).expanduser()
    if not location.exists():
        raise InputError(
            f"the source {source} does not exist; --source takes a folder, a file, 'sample' or '{SCHEME}<id>'"
        )
    if location.is_file() and format not in (AUTO, *OF_FILES):
        raise InputError(f"{source} is a file, and the format {format!r} is read from a folder; give its folder")
    location, known = _recognised(location) if format == AUTO else (location, format)
    opened = OPENERS[known](location, options)
    if format == AUTO and opened.format in UNLABELLED:
        _refuse_unread_labels(location, opened)
    for name in opened.files:
        if not is_unicode(name):
            raise InputError(f"{source}: the file name {name!a} is not UTF-8; rename it")
    there = walk(location, location, (*article_tree.SUFFIXES, *TABLE_SUFFIXES)) if location.is_dir() else ()
    paths = {path for _, path, why in there if not why} - {*opened.files.values()}
    if unread := _kinds(path for path in paths if path.stem.lower() not in ABOUT):
        opened = replace(opened, notes=(*opened.notes, f"read as {opened.format}; not read: {unread}"))
    return opened


def _only_table(location: Path) -> Path | None:
    """The table in a folder that holds nothing else, whatever its name."""
    only = [] if location.is_file() else [path for path in location.iterdir() if path.name[0] != "."]
    if len(only) != 1 or not suffix_of(only[0]) or not only[0].is_file() or find_tables(location):
        return None
    return only[0]


def _refuse_unread_labels(location: Path, opened: Source) -> None:
    """Refuses a folder that has training files but no queries, because the training files would not be read."""
    if location.is_dir() and not any(name.startswith("queries") for name in opened.files):
        for path in training_files(location):
            raise InputError(
                f"{path} has questions, which are not read beside {next(iter(opened.files))}; write them as "
                "queries.jsonl and qrels/train.tsv, or name this file as the source"
            )


def _recognised(location: Path) -> tuple[Path, str]:
    """What is read, which is the only table of a folder if this has no format of its own, and in which format."""
    found = _detect_file(location) if location.is_file() else _detect_folder(location)
    if found is None and (only := _only_table(location)):
        location, found = only, _detect_file(only)
    if found is not None:
        return location, found
    if location.is_dir() and not any(location.iterdir()):
        raise InputError(f"{location} is an empty folder; put a corpus into it, or give another --source")
    raise InputError(
        f"{location} has no known format: it {_content(location)}; --source takes documents "
        f"({', '.join(article_tree.SUFFIXES)}), a table of passages named passages or corpus "
        f"({', '.join(TABLE_SUFFIXES)}), files of questions with their passages, or a data set as it was published "
        "(docs/train.md#sources); rename the files, or give one of them"
    )


def _content(location: Path) -> str:
    """What a folder holds, or what a file is, in a few words."""
    if location.is_file():
        return f"is a {location.suffix or 'plain'} file"
    return f"holds {_kinds(path for path in location.rglob('*') if path.is_file()) or 'no file'}"


def _kinds(paths: Iterable[Path]) -> str:
    """The number of files of the four most frequent suffixes."""
    counts = Counter(path.suffix or "other" for path in paths).most_common(4)
    return ", ".join(f"{count:,} {suffix} file{'s' * (count > 1)}" for suffix, count in counts)


def _detect_file(path: Path) -> str | None:
    if training_files(path):
        return TRAINING
    if path.name.lower().endswith((".jsonl", ".jsonl.gz")):
        return ARTICLE_JSONL if _holds_articles(path) else JSONL
    if squad_paths(path) and _is_squad(path):
        return SQUAD
    if evaluator_files(path):
        return EVALUATOR_JSON
    if suffix_of(path):
        return TABLES
    return ARTICLE_TREE if path.suffix.lower() in article_tree.SUFFIXES else None


def _detect_folder(folder: Path) -> str | None:
    names = {BEIR: "corpus.jsonl", REQA: "candidates.jsonl", JSONL: "passages.jsonl", ARTICLE_JSONL: "articles.jsonl"}
    for format, name in names.items():
        if find_file(folder, name):
            return format
    if passage_files(folder):
        return DPR
    if collection := find_collection(folder):
        return TABLES if _is_table(folder, collection) else MSMARCO
    if files_of(folder, "passages"):
        return TABLES
    if training_files(folder):
        return TRAINING
    if any(map(_is_squad, squad_paths(folder))):
        return SQUAD
    if evaluator_files(folder):
        return EVALUATOR_JSON
    found = tree_files(folder, article_tree.SUFFIXES)
    return ARTICLE_TREE if found.paths or found.rejected else None


def _is_table(folder: Path, collection: Path) -> bool:
    """Whether a corpus.tsv names its columns, and so do all the tables beside it."""
    if not collection.name.startswith("corpus."):
        return False
    try:
        refuse_unnamed(tables := find_tables(folder))
    except InputError:
        return False
    return {*label_files(folder)} <= {table.path for table in tables}


def _is_squad(path: Path) -> bool:
    """Whether a JSON file begins like a SQuAD file."""
    return b'"data"' in beginning(path)


def _holds_articles(path: Path) -> bool:
    """Whether the first JSON object of a file has sections."""
    objects = (row for row in read_objects(path, path.name) if isinstance(row, Fields))
    return "sections" in next(objects, {})
