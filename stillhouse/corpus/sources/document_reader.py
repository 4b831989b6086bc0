"""A program that reads documents for `document_article`, which bounds its time; it bounds its memory and text itself.

It reads a path per line, and writes the title and blocks of the file, or why it has none, as a line. Both are JSON.
"""

import json
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple
from html import unescape
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree
from zipfile import ZipFile

import anydoc
import pypdfium2
from pypdfium2.raw import FPDF_ERR_PASSWORD

from stillhouse.corpus.sources.article import Block
from stillhouse.corpus.sources.markdown_article import markdown_blocks
from stillhouse.corpus.sources.pdf_blocks import pdf_blocks

MEMORY = 2 << 30
"""Bytes of memory that a file may take."""
LONGEST = 1 << 26
"""Characters of text that a file may have."""
ENCRYPTED = "encrypted; save it without a password"
_TITLE = re.compile(r"<dc:title\b[^>]*>([^<]+)</dc:title>")


class NoText(Exception):
    """Why a document has no text to read."""


def read(data: bytes, suffix: str) -> tuple[str, list[Block]]:
    """The title, or "", and the blocks of a document. Raises `NoText` with the reason if it has none."""
    if suffix == ".pdf":
        return _read_pdf(data)
    try:
        blocks = list(_blocks(data, suffix))
    except anydoc.EncryptedError:
        raise NoText(ENCRYPTED) from None
    if suffix == ".pptx":
        return "", [block for page, slide in _slides(data) for block in _blocks(slide, suffix, page)]
    return _title(data), blocks


def _read_pdf(data: bytes) -> tuple[str, list[Block]]:
    try:
        pdf = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        raise NoText(ENCRYPTED if error.err_code == FPDF_ERR_PASSWORD else "not a PDF, or damaged") from None
    if not (blocks := pdf_blocks(pdf)):
        raise NoText(f"no text on its {len(pdf)} pages; if they are scans, recognise their text first (OCR)")
    title = " ".join(pdf.get_metadata_value("Title").split())
    return "" if title.startswith(("Microsoft ", "untitled")) else title, blocks


def _blocks(data: bytes, suffix: str, page: int = 0) -> Iterator[Block]:
    text = anydoc.to_markdown_bytes(data, suffix[1:])  # type: ignore[arg-type]
    for block in markdown_blocks(text):
        block.line, block.page = page or 1, page
        yield block


def _slides(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Every slide with its number, as a presentation of its own: the library does not say where a slide ends."""
    main = "ppt/presentation.xml"
    with ZipFile(BytesIO(data)) as file:
        parts = {part: file.read(part) for part in file.namelist() if not part.startswith("ppt/media/")}
    root = ElementTree.fromstring(parts[main])  # noqa: S314  # in a process with bounds
    slides = root.find("{*}sldIdLst")
    assert slides is not None, "no slides"
    for number, slide in enumerate(list(slides), start=1):
        slides[:] = [slide]
        written = BytesIO()
        with ZipFile(written, "w") as alone:
            for part, content in parts.items():
                alone.writestr(part, ElementTree.tostring(root) if part == main else content)
        yield number, written.getvalue()


def _title(data: bytes) -> str:
    """The title among the properties of a file, or ""."""
    with ZipFile(BytesIO(data)) as file:
        for part in file.namelist():
            if part.endswith(("core.xml", "meta.xml", ".opf")) and (
                found := _TITLE.search(file.read(part).decode("utf-8", errors="replace"))
            ):
                return " ".join(unescape(found[1]).split())
    return ""


def main() -> None:
    with suppress(ValueError, OSError):  # macOS has no such bound
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        path = Path(json.loads(line))
        title, blocks, reason = "", list[Block](), ""
        try:
            title, blocks = read(path.read_bytes(), path.suffix.lower())
            if sum(len(block.text) for block in blocks) > LONGEST:
                raise NoText(f"more than {LONGEST >> 20} MiB of text")
        except MemoryError:
            reason = f"needs more than {MEMORY >> 30} GiB of memory"
        except NoText as error:
            reason = str(error)
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
        except Exception as error:
            # Libraries raise errors of many kinds for damaged files.
            reason = f"damaged: {error}"
        answer = {"title": title, "blocks": [] if reason else [astuple(block) for block in blocks], "reason": reason}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
