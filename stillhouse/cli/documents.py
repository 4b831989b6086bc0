"""`stillhouse documents export`: exports the documents that a service received, for the next refresh."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from stillhouse.artifacts import whole_folder
from stillhouse.errors import InputError
from stillhouse.terminal import show
from stillhouse.workflow.parser import Parser

EXAMPLES = """\
LOG is the folder passed to `stillhouse serve --documents`; the service may be running. The command writes two files to
FOLDER: corpus.jsonl (_id, title, text), which `stillhouse ingest` reads as a BEIR folder, and deleted.jsonl, with the
ids to remove from the corpus. A document in corpus.jsonl replaces the passage with the same id.

example:
  stillhouse documents export live new-documents
"""


def main(argv: Sequence[str]) -> int:
    parser = Parser("documents", "Exports the documents that a service received, as JSONL.", EXAMPLES)
    parser.add_argument("action", choices=("export",), help="export: write the current content of the log")
    parser.add_argument("log", metavar="LOG", type=Path, help="the log folder")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a new folder to write to")
    arguments = parser.parse(argv)
    documents, deleted = export(arguments.log, arguments.folder)
    show(f"wrote {documents:,} documents and {deleted:,} deleted ids to {arguments.folder}")
    return 0


def export(log: Path, folder: Path) -> tuple[int, int]:
    """Returns how many documents and deleted ids were written. Raises `InputError` for a missing or damaged log."""
    from stillhouse.serving.document_log import FILE, read_log, replayed

    if folder.exists():
        raise InputError(f"{folder} already exists; choose a new folder")
    path = log / FILE
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} does not exist; give the folder that `stillhouse serve --documents` uses") from None
    found = replayed(read_log(data, path)[0])
    kept = [each for each in found.values() if each is not None]
    lines = [{"_id": each["passage_id"], "title": each["title"], "text": each["text"]} for each in kept]
    deleted = [{"_id": id} for id, each in found.items() if each is None]
    with whole_folder(folder) as staging:
        for name, rows in (("corpus.jsonl", lines), ("deleted.jsonl", deleted)):
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (staging / name).write_text(text, encoding="utf-8")
    return len(lines), len(deleted)
