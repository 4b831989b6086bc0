"""`stillhouse documents export`: exports the documents that a service received, for the next refresh."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.artifacts import whole_folder
from stillhouse.errors import InputError
from stillhouse.terminal import show
from stillhouse.workflow.parser import Parser

if TYPE_CHECKING:
    from stillhouse.serving.document_log import Document

EXAMPLES = """\
LOG is the folder passed to `stillhouse serve --documents`; the service may be running. The command writes two files to
FOLDER: corpus.jsonl (_id, title, text, article) and deleted.jsonl, with the ids to remove from the corpus. A refresh
applies both to its corpus: a document replaces the passage with the same id.

examples:
  stillhouse documents export live new-documents
  stillhouse documents export live newer-documents --onto new-documents
  stillhouse refresh https://git.example/search/releases.git --documents new-documents
"""


def main(argv: Sequence[str]) -> int:
    parser = Parser("documents", "Exports the documents that a service received, as JSONL.", EXAMPLES)
    parser.add_argument("action", choices=("export",), help="export: write the current content of the log")
    parser.add_argument("log", metavar="LOG", type=Path, help="the log folder")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a new folder to write to")
    parser.add_argument(
        "--onto", metavar="FOLDER", type=Path, help="an earlier export; what the log holds replaces or deletes its own"
    )
    arguments = parser.parse(argv)
    documents, deleted = export(arguments.log, arguments.folder, arguments.onto)
    show(f"wrote {documents:,} documents and {deleted:,} deleted ids to {arguments.folder}")
    return 0


def export(log: Path, folder: Path, onto: Path | None = None) -> tuple[int, int]:
    """Returns how many documents and deleted ids were written. Raises `InputError` for a missing or damaged log, and
    for an earlier export `onto` that is not one."""
    from stillhouse.corpus.sources.documents import CORPUS, DELETED
    from stillhouse.serving.document_log import FILE, read_log, replayed

    if folder.exists():
        raise InputError(f"{folder} already exists; choose a new folder")
    path = log / FILE
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} does not exist; give the folder that `stillhouse serve --documents` uses") from None
    found = _exported(onto) if onto else {}
    for id, document in replayed(read_log(data, path)[0]).items():
        found.pop(id, None)
        found[id] = document
    lines = [_line(each) for each in found.values() if each is not None]
    deleted = [{"_id": id} for id, each in found.items() if each is None]
    with whole_folder(folder) as staging:
        for name, rows in ((CORPUS, lines), (DELETED, deleted)):
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (staging / name).write_text(text, encoding="utf-8")
    return len(lines), len(deleted)


def _line(document: Document) -> dict[str, str]:
    id, article = document["passage_id"], document["article_id"]
    line = {"_id": id, "title": document["title"], "text": document["text"]}
    return line if article == id else line | {"article": article}


def _exported(folder: Path) -> dict[str, Document | None]:
    """The content of an earlier export, like `replayed`."""
    from stillhouse.corpus.sources.documents import CORPUS, DELETED, document_files, read_deleted, read_documents
    from stillhouse.corpus.sources.rows import Rejected

    files = document_files(folder)
    found: dict[str, Document | None] = {}
    for row in (*read_documents(files[CORPUS]), *read_deleted(files[DELETED])):
        if isinstance(row, Rejected):
            raise InputError(f"{folder} is damaged: {row.where}: {row.reason}; export the documents again")
        if isinstance(row, str):
            found[row] = None
        else:
            found[row.id] = {
                "passage_id": row.id,
                "article_id": row.article_id,
                "title": row.title,
                "text": row.text,
            }
    return found
