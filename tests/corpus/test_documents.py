"""Folders of documents, written by other libraries or by hand: their known text, and files that are not read."""

from __future__ import annotations

import io
import random
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docx
import pptx
import pytest
from PIL import Image
from pptx.util import Inches
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.lib.utils import ImageReader
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.pdfmetrics import registerFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Paragraph, Preformatted, SimpleDocTemplate

from stillhouse.corpus.sources import document_article
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import LeftOut, NotProse, Passage, Rejected

Write = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("paragraphs_apart")
CHOICE, WORDS = random.Random(0), ("tea", "leaves", "of", "Assam", "are", "oxidised", "co-operatively")
SECTIONS = {
    f"Part {k}": [f"Here {' '.join(CHOICE.choices(WORDS, k=90))}." for _ in range(12)] for k in ("one", "two", "three")
}


def pdf() -> bytes:
    """A manual of several pages with headings, paragraphs, a listing and, on every page, a header and a footer."""

    def edges(canvas: Any, _: object) -> None:
        canvas.drawString(70, 810, "The tea manual, first edition")
        canvas.drawString(280, 20, f"- {canvas.getPageNumber()} -")

    file, styles = io.BytesIO(), getSampleStyleSheet()
    story: list[Any] = []
    for heading, paragraphs in SECTIONS.items():
        story.append(Paragraph(heading, styles["Heading2"]))
        story += [Paragraph(text, styles["BodyText"]) for text in paragraphs]
    story.append(Preformatted("boil(water)\nwait(4)", styles["Code"]))
    SimpleDocTemplate(file, title="The tea manual").build(story, edges, edges)
    return file.getvalue()


def word() -> bytes:
    file, document = io.BytesIO(), docx.Document()
    document.core_properties.title = "Tea & water"
    document.add_heading("Making", 1)
    document.add_paragraph("Pour the water.")
    table = document.add_table(2, 2)
    for place, text in (((0, 0), "Kind"), ((0, 1), "Minutes"), ((1, 0), "Black"), ((1, 1), "4")):
        table.cell(*place).text = text
    document.add_heading("Drinking", 1)
    document.add_paragraph("Drink it.")
    document.save(file)
    return file.getvalue()


def slides() -> bytes:
    file, deck = io.BytesIO(), pptx.Presentation()
    for title, text in (("Why tea", "It is warm."), ("", "No title here."), ("Summary", "Drink tea.")):
        slide = deck.slides.add_slide(deck.slide_layouts[5 if title else 6])
        if title:
            slide.shapes.title.text = title
        slide.shapes.add_textbox(0, 0, Inches(3), Inches(1)).text_frame.text = text
    deck.save(file)
    return file.getvalue()


def packed(files: dict[str, str], **options: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, **options) as parts:
        for name, content in files.items():
            parts.writestr(name, content, zipfile.ZIP_STORED if name == "mimetype" else None)
    return file.getvalue()


def odt() -> bytes:
    spaces = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "text"))
    body = '<text:h text:outline-level="2">Leaves</text:h><text:p>Green <text:span>leaves</text:span>.</text:p>'
    content = f"<office:document-content {spaces}><office:body><office:text>{body}</office:text></office:body>"
    return packed(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"{content}</office:document-content>",
            "meta.xml": "<m xmlns:dc='http://purl.org/dc/elements/1.1/'><dc:title>On leaves</dc:title></m>",
        }
    )


def epub() -> bytes:
    container = '<container><rootfiles><rootfile full-path="b.opf"/></rootfiles></container>'
    items = "".join(f'<item id="c{k}" href="{k}.xhtml" media-type="application/xhtml+xml"/>' for k in (2, 1))
    metadata = '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>A book</dc:title></metadata>'
    spine = '<spine><itemref idref="c1"/><itemref idref="c2"/></spine>'
    chapters = {
        f"{k}.xhtml": f"<html xmlns='http://www.w3.org/1999/xhtml'><body><h2>{k}</h2><p>Chapter {k}.</p></body></html>"
        for k in (1, 2)
    }
    opf = {"b.opf": f"<package>{metadata}<manifest>{items}</manifest>{spine}</package>"}
    return packed({"mimetype": "application/epub+zip", "META-INF/container.xml": container} | opf | chapters)


def rows_of(folder: Path, kind: Any) -> list[Any]:
    return [row for row in open_source(str(folder)).rows() if isinstance(row, kind)]


def test_a_mixed_folder_is_read_whole(write: Write) -> None:
    texts = {"e.md": "# E\n\nSee [a](a.docx).\n", "f.html": "<p>A page.", "g.txt": "A text."}
    beside = {"_sources/f.txt": "x", "robots.txt": "none"}
    folder = write({"a.docx": word(), "b.odt": odt(), "c.epub": epub(), "d.pptx": slides()} | texts | beside)
    source = open_source(str(folder))
    assert source.format == "article-tree" and all(f"1 .{kind}" in source.notes[0] for kind in ("odt", "md", "html"))
    rows = list(source.rows())
    assert [(*row[:3], row.section, (row.fields or {}).get("page")) for row in rows if isinstance(row, Passage)] == [
        ("a#1", "Tea & water: Making", "Pour the water.", "Making", None),
        ("a#2", "Tea & water: Making", "Kind | Minutes\nBlack | 4", "Making", None),
        ("a#3", "Tea & water: Drinking", "Drink it.", "Drinking", None),
        ("b#1", "On leaves: Leaves", "Green leaves.", "Leaves", None),
        ("c#1", "A book: 1", "Chapter 1.", "1", None),
        ("c#2", "A book: 2", "Chapter 2.", "2", None),
        ("d#1", "d: Why tea", "It is warm.", "Why tea", 1),
        ("d#2", "d: Why tea", "No title here.", "Why tea", 2),
        ("d#3", "d: Summary", "Drink tea.", "Summary", 3),
        ("e#1", "E", "See a.", "", None),
        ("f#1", "f", "A page.", "", None),
        ("g#1", "g", "A text.", "", None),
    ]
    assert rows == [part.finish(row) for part in source.parts(1, map) for row in part.read()]
    assert [row[:2] for row in rows if isinstance(row, NotProse)] == [("a#2", "table")]
    assert [row[:2] for row in rows if type(row).__name__ == "Link"] == [("e", "a")]


def test_of_files_with_one_name_the_text_is_read_before_the_document(write: Write) -> None:
    folder = write({"a.docx": word(), "a.md": "Words.\n", "a.html": "<p>Page."})
    assert [row.text for row in rows_of(folder, Passage)] == ["Words."]
    assert len(rows_of(folder, LeftOut)) == 2 and not rows_of(folder, Rejected)


def test_a_pdf_gives_its_paragraphs_whole_with_their_sections_and_pages(write: Write) -> None:
    passages = rows_of(write({"a.pdf": pdf()}), Passage)
    known = [(heading, text) for heading, paragraphs in SECTIONS.items() for text in paragraphs]
    assert [(row.section, row.text) for row in passages[:-1]] == known
    assert passages[-1].text == "boil(water)\nwait(4)"
    assert {row.title for row in passages} == {f"The tea manual: {heading}" for heading in SECTIONS}
    pages = [row.fields["page"] for row in passages]
    assert pages == sorted(pages) and set(pages) == set(range(1, max(pages) + 1)) and max(pages) > 3


def written_pdf(draw: Callable[[Canvas], object], **options: Any) -> bytes:
    file = io.BytesIO()
    canvas = Canvas(file, pagesize=A4, **options)
    draw(canvas)
    canvas.save()
    return file.getvalue()


def bomb() -> bytes:
    with zipfile.ZipFile(io.BytesIO(word())) as parts:
        files = {name: parts.read(name).decode("utf-8", "replace") for name in parts.namelist()}
    files["word/document.xml"] = files["word/document.xml"].replace("Pour", "Pour" * (32 << 20))
    return packed(files, compresslevel=1)


LINES = {
    "The paragraph is about oxidation, which makes tea black.": (
        "Helvetica",
        ("The paragraph is about oxi-", "dation, which makes tea", "black."),
    ),
    "Tea is dry. It is black.": ("STSong-Light", ("Tea is dry. It is", "\u3000", "black.")),
    "茶是一种饮料，由茶树的叶子制成。": ("STSong-Light", ("茶是一种饮料，由茶树的叶", "子制成。")),
}


@pytest.mark.parametrize("text", LINES)
def test_lines_are_joined_as_their_language_writes_them(text: str, write: Write) -> None:
    font, lines = LINES[text]

    def draw(canvas: Canvas) -> None:
        canvas.setFont(font, 12)
        for number, line in enumerate(lines):
            canvas.drawString(70, 700 - 14 * number, line)

    registerFont(UnicodeCIDFont("STSong-Light"))
    [row] = rows_of(write({"a.pdf": written_pdf(draw)}), Passage)
    assert row.text == text


def scan(canvas: Canvas) -> None:
    canvas.drawImage(ImageReader(Image.new("L", (200, 300), 128)), 0, 0)


LOOP = b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[2 0 R]/Count 99>>endobj\n"
REJECTED: dict[str, tuple[bytes, str]] = {
    "encrypted.pdf": (written_pdf(lambda canvas: canvas.drawString(9, 9, "secret"), encrypt="key"), "encrypted"),
    "scanned.pdf": (written_pdf(scan), "no text on its 1 pages; if they are scans"),
    "cut.pdf": (pdf()[: len(pdf()) // 2], "not a PDF, or damaged"),
    "half.docx": (word()[: len(word()) // 2], "damaged"),
    "loop.pdf": (LOOP + b"trailer<</Size 3/Root 1 0 R>>\n%%EOF", "damaged: Failed to load page"),
    "other.pptx": (b"words", "damaged"),
    "empty.docx": (b"", "damaged"),
}


def test_what_cannot_be_read_is_rejected_with_the_reason_and_the_rest_is_read(write: Write) -> None:
    cases = REJECTED | {"bomb.docx": (bomb(), "damaged: resource limit exceeded")}
    folder = write({name: data for name, (data, _) in cases.items()} | {"z.docx": word()})
    rejected = {row.where.split(":")[0]: row.reason for row in rows_of(folder, Rejected)}
    assert {row.article_id for row in rows_of(folder, Passage)} == {"z"}
    assert {name: rejected[name][: len(reason)] for name, (_, reason) in cases.items()} == {
        name: reason for name, (_, reason) in cases.items()
    }


MISCHIEF = """
import os, time
from stillhouse.corpus.sources import document_reader

def read(data, suffix):
    if data == b"hang":
        time.sleep(100)
    if data == b"crash":
        os.abort()
    if data == b"grow":
        return bytearray(3 << 30)
    return sound(data, suffix)

sound, document_reader.read = document_reader.read, read
document_reader.main()
"""


def test_a_reader_that_hangs_crashes_or_grows_is_ended_and_another_goes_on(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_article, "READER", (sys.executable, "-c", MISCHIEF))
    monkeypatch.setattr(document_article, "SECONDS", 6)
    bad = {"a.pdf": b"hang", "c.pdf": b"crash", "e.pdf": b"grow"}
    folder = write(bad | dict.fromkeys(("b.docx", "d.docx", "f.docx"), word()))
    rows = list(open_source(str(folder)).rows())
    assert {row.article_id for row in rows if isinstance(row, Passage)} == {"b", "d", "f"}
    assert [row.reason.split(";")[0] for row in rows if isinstance(row, Rejected)] == [
        "not read within 6 seconds",
        "its reader ended with SIGABRT, as without memory",
        "needs more than 2 GiB of memory",
    ]
