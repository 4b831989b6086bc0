"""A tree of article files: Markdown, text, HTML pages and documents such as PDF, each read by its suffix.

A source may come from a repository, so no link may lead out of it: `notes.txt -> /etc/passwd` would become a passage.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.article import Article
from stillhouse.corpus.sources.document_article import DOCUMENTS, Documents
from stillhouse.corpus.sources.front_matter import front_matter
from stillhouse.corpus.sources.html_article import read_page
from stillhouse.corpus.sources.labels import find_labels, read_labels
from stillhouse.corpus.sources.lines import spaceless, together
from stillhouse.corpus.sources.markdown_article import markdown_blocks
from stillhouse.corpus.sources.options import Options
from stillhouse.corpus.sources.plain_article import plain_blocks
from stillhouse.corpus.sources.rows import (
    CONTENT_LENGTH,
    Each,
    LeftOut,
    Link,
    Part,
    Passage,
    Qrel,
    Rejected,
    Row,
    Source,
)
from stillhouse.corpus.sources.table_columns import kept_fields
from stillhouse.corpus.sources.text_encoding import NotText, decode_text

BESIDE_PAGES = ("_sources", "robots.txt")
"""Files of a web site that are not articles: rules for robots, and Sphinx's copies of its sources."""
LEADS_OUT = "a link out of the source, to nowhere or to a folder; copy there what it leads to"
ARTICLE_TREE, HTML_TREE = "article-tree", "html-tree"
ADORNED = ".rst"
PLAIN = (".txt", ADORNED)
TEXTS = (".markdown", ".md", *PLAIN)
PAGES = (".htm", ".html", ".xhtml")
SUFFIXES = (*TEXTS, *PAGES, *DOCUMENTS)
MOST_TOGETHER = 10_000
"""Files per part when several processes read a tree."""


class TreeFiles(NamedTuple):
    """`paths` maps the articles' paths below `root` to their paths, in order; `rejected` lists the other files."""

    root: Path
    paths: dict[str, Path]
    rejected: list[Rejected]


def leads_out(path: Path, source: Path) -> bool:
    """Whether an existing path is outside the source after all links are followed."""
    return not path.resolve().is_relative_to(source.resolve())


def tree_files(source: Path, suffixes: tuple[str, ...]) -> TreeFiles:
    """The files below a folder, or below its `articles/`, that end in one of `suffixes`.

    Hidden files and `BESIDE_PAGES` are left out. Links to files within the source are followed; the source itself may
    be a link, or one file. Raises `InputError` if `articles/` is a link out of the source.
    """
    if source.is_file():
        return TreeFiles(source.parent, {source.name: source}, [])
    root = source / "articles" if (source / "articles").is_dir() else source
    if leads_out(root, source):
        raise InputError(f"{root} links out of the source; give its target as the source")
    found = TreeFiles(root, {}, [])
    for relative, path, reason in sorted(walk(root, source, suffixes)):
        if reason:
            id = PurePosixPath(relative).with_suffix("").as_posix()
            found.rejected.append(Rejected("passage", id, reason, path.relative_to(source).as_posix(), ""))
        else:
            found.paths[relative] = path
    return found


def walk(root: Path, source: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, Path, str]]:
    """(path below the root, path, why it is not read or "") of every article and of every unread folder."""
    closed: list[OSError] = []
    for place, folders, files in os.walk(root, onerror=closed.append):
        folders[:] = filter(_is_shown, folders)
        names = (name for name in filter(_is_shown, files) if PurePosixPath(name).suffix.lower() in suffixes)
        for path in (Path(place, name) for name in (*folders, *names)):
            if path.is_symlink() and (not path.is_file() or leads_out(path, source)):
                yield path.relative_to(root).as_posix(), path, LEADS_OUT
            elif path.is_file():
                yield path.relative_to(root).as_posix(), path, ""
    for error in closed:
        path = Path(error.filename)
        if path == root:
            raise InputError(f"{root} cannot be read: {error.strerror}")
        yield path.relative_to(root).as_posix(), path, f"cannot be read: {error.strerror}"


def _is_shown(name: str) -> bool:
    return not name.startswith(".") and name not in BESIDE_PAGES


def open_article_tree(
    folder: Path, options: Options, format: str = ARTICLE_TREE, suffixes: tuple[str, ...] = SUFFIXES
) -> Source:
    """A folder of articles, or one that holds them in `articles/`; `queries.jsonl` and `qrels/` are in the folder. Or
    one file, whose sections are the articles: made questions are held out by articles.

    An article's id is its path below the tree without the suffix, with white space percent-encoded. Of files with the
    same id, the one whose suffix is first in `SUFFIXES` is read. A passage's id is `<article id>#<k>`, where
    k is the number of its first paragraph in the article. Links out of the folder are rejected; `queries.jsonl` and
    `qrels/` must not be such links.
    """
    found = tree_files(folder, suffixes)
    if not found.paths:
        why = f" that can be read: {found.rejected[0].where}, {found.rejected[0].reason}" if found.rejected else ""
        raise InputError(f"{found.root} has no article{why}: no file that ends in {', '.join(suffixes)}")
    alone = folder.is_file()
    folder, labels = (folder.parent, {}) if alone else (folder, find_labels(folder))
    for path in labels.values():
        if leads_out(path, folder):
            raise InputError(f"{path} links out of the source; put the file itself there, or remove it")
    ids = {relative: spaceless(Path(relative).with_suffix("").as_posix()) for relative in found.paths}
    files = {path.relative_to(folder).as_posix(): path for path in found.paths.values()}
    kinds = Counter(_suffix(path) for path in files.values())
    # A link to a kind of file that the tree does not have is not a link between articles.
    linkable = tuple(chain.from_iterable(kind for kind in (TEXTS, PAGES, DOCUMENTS) if kinds.keys() & set(kind)))

    def articles() -> Iterator[tuple[Article, bool]]:
        last_first = sorted(ids, key=lambda relative: SUFFIXES.index(_suffix(Path(relative))), reverse=True)
        read = {ids[relative]: relative for relative in last_first}
        labelled = {row.passage_id for row in read_labels(labels) if isinstance(row, Qrel)}
        for (name, path), (relative, id) in zip(files.items(), ids.items()):
            yield Article(path, name, relative, id, linkable, labelled), read[id] != relative

    def linked(row: Row) -> Row:
        if alone and isinstance(row, Passage) and row.section:
            return row._replace(article_id=spaceless(f"{row.article_id}/{row.section}"))
        # A target outside the tree keeps its path, so that cleaning can report it.
        return row._replace(target=ids.get(row.target, row.target)) if isinstance(row, Link) else row

    def parts(size: int, each: Each) -> Iterator[Part]:
        yield Part(partial(list, found.rejected))
        for some in together(articles(), lambda one: one[0].path.stat().st_size, size, MOST_TOGETHER):
            yield Part(partial(_read_articles, options.fields, some), linked)
        yield Part(partial(read_labels, labels))

    counts = ", ".join(f"{count:,} {suffix}" for suffix, count in kinds.most_common())
    notes = [f"files by kind: {counts}"] if len(kinds) > 1 else []
    return Source(format, files | labels, parts, notes=tuple(notes), cells=True)


def _suffix(path: Path) -> str:
    return path.suffix.lower()


def _read_articles(names: Sequence[str], articles: Iterable[tuple[Article, bool]]) -> Iterator[Row]:
    """The rows of articles, each given with whether another article has its id; links lead to paths."""
    with closing(Documents()) as documents:
        for article, repeated in articles:
            if repeated:
                yield LeftOut("passage", "file with the article id of another")
                continue
            data = b""
            try:
                if _suffix(article.path) in DOCUMENTS:
                    yield from documents.read(article)
                else:
                    data = article.path.read_bytes()
                    yield from (read_page if _suffix(article.path) in PAGES else _read_text)(names, article, data)
            except PermissionError as error:
                yield article.rejected(f"cannot be read: {error.strerror}")
            except NotText as reason:
                yield article.rejected(str(reason), data[:CONTENT_LENGTH].decode("utf-8", errors="replace"))


def _read_text(names: Sequence[str], article: Article, data: bytes) -> Iterator[Row]:
    text, title, fields = decode_text(data), "", None
    if _suffix(article.path) in PLAIN:
        blocks = list(plain_blocks(text, _suffix(article.path) == ADORNED))
    else:
        if front := front_matter(text):
            title, fields = front.title, kept_fields(names, front.others)
            if front.fault:
                yield Rejected("line", "", front.fault, f"{article.name}:1", text[: front.length])
            # Keeps its lines, so that line numbers of blocks match the file.
            text = "\n" * text.count("\n", 0, front.length) + text[front.length :]
        blocks = list(markdown_blocks(text))
    yield from article.rows(blocks, article.path.stem, title, fields)
