"""A tree of article files: Markdown and text; `html_tree` does the same for HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.article import Article
from stillhouse.corpus.sources.front_matter import MOST, front_matter
from stillhouse.corpus.sources.kept_fields import kept_fields, not_kept
from stillhouse.corpus.sources.labels import find_labels, read_labels
from stillhouse.corpus.sources.lines import LONGEST, TOO_LONG, spaceless
from stillhouse.corpus.sources.markdown_article import markdown_blocks
from stillhouse.corpus.sources.options import Options
from stillhouse.corpus.sources.plain_article import plain_blocks
from stillhouse.corpus.sources.rows import CONTENT_LENGTH, Each, Link, Part, Rejected, Row, Source
from stillhouse.corpus.sources.text_encoding import NotText, read_lines_of_text
from stillhouse.corpus.sources.tree_files import leads_out, tree_files

ARTICLE_TREE = "article-tree"
PLAIN = (".txt",)
SUFFIXES = (".md", ".markdown", *PLAIN)
MOST_TOGETHER = 10_000
"""Files per part when several processes read a tree."""

ReadArticle = Callable[[Article, bytes], Iterator[Row]]
"""Returns the rows of an article from the content of its file. Raises `NotText`."""


def open_article_tree(folder: Path, options: Options) -> Source:
    """A folder of Markdown and text articles (`open_tree`)."""
    source = open_tree(folder, ARTICLE_TREE, SUFFIXES, partial(_read_article, options.fields))
    with suppress(OSError), next(iter(source.files.values())).open(encoding="utf-8", errors="replace") as first:
        if front := front_matter(first.read(MOST)):
            return replace(source, notes=not_kept(options.fields, front.others, ()))
    return source


def open_tree(folder: Path, format: str, suffixes: tuple[str, ...], read: ReadArticle) -> Source:
    """A folder of articles, or one that holds them in `articles/`; `queries.jsonl` and `qrels/` are in the folder.

    An article's id is its path below the tree without the suffix, with white space percent-encoded. A passage's id is
    `<article id>#<k>` for the k-th passage of the article, counted from 1. Files with a name that is not UTF-8, and
    links out of the folder, are rejected; `queries.jsonl` and `qrels/` must not be such links.
    """
    found = tree_files(folder, suffixes)
    if not found.paths:
        why = f" that can be read: {found.rejected[0].where}, {found.rejected[0].reason}" if found.rejected else ""
        raise InputError(f"{found.root} has no article{why}: no file that ends in {', '.join(suffixes)}")
    labels = find_labels(folder)
    for path in labels.values():
        if leads_out(path, folder):
            raise InputError(f"{path} links out of the source; put the file itself there, or remove it")
    ids = {relative: spaceless(Path(relative).with_suffix("").as_posix()) for relative in found.paths}
    files = {path.relative_to(folder).as_posix(): path for path in found.paths.values()}

    def articles() -> Iterator[tuple[Article, bool]]:
        seen: set[str] = set()
        for (name, path), (relative, id) in zip(files.items(), ids.items()):
            yield Article(path, name, relative, id, suffixes), id in seen
            seen.add(id)

    def linked(row: Row) -> Row:
        # A target outside the tree keeps its path, so that cleaning can report it.
        return row._replace(target=ids.get(row.target, row.target)) if isinstance(row, Link) else row

    def rows() -> Iterator[Row]:
        yield from found.rejected
        yield from map(linked, _read_articles(articles(), read))
        yield from read_labels(labels)

    def parts(size: int, each: Each) -> list[Part]:
        of_articles = [Part(partial(_read_articles, some, read), linked) for some in _together(articles(), size)]
        return [Part(partial(list, found.rejected)), *of_articles, Part(partial(read_labels, labels))]

    return Source(format, files | labels, rows, parts=parts, cells=True)


def _read_articles(articles: Iterable[tuple[Article, bool]], read: ReadArticle) -> Iterator[Row]:
    """The rows of articles, each given with whether an earlier article has its id; links lead to paths."""
    for article, repeated in articles:
        if repeated:
            yield article.rejected("duplicate article id")
            continue
        if article.path.stat().st_size > LONGEST:
            yield article.rejected(TOO_LONG)
            continue
        try:
            data = article.path.read_bytes()
        except PermissionError as error:
            yield article.rejected(f"cannot be read: {error.strerror}")
            continue
        try:
            yield from read(article, data)
        except NotText as reason:
            yield article.rejected(str(reason), data[:CONTENT_LENGTH].decode("utf-8", errors="replace"))


def _together(articles: Iterable[tuple[Article, bool]], size: int) -> Iterator[list[tuple[Article, bool]]]:
    """Groups the articles until their files have `size` bytes together, at most `MOST_TOGETHER` per group."""
    some: list[tuple[Article, bool]] = []
    total = 0
    for article, repeated in articles:
        some.append((article, repeated))
        total += article.path.stat().st_size
        if total >= size or len(some) == MOST_TOGETHER:
            yield some
            some, total = [], 0
    if some:
        yield some


def _read_article(names: tuple[str, ...], article: Article, data: bytes) -> Iterator[Row]:
    lines = read_lines_of_text(data)
    for number, content in lines.unread:
        yield Rejected("line", "", "not UTF-8", f"{article.name}:{number}", content)
    text, title, fields = lines.text, "", None
    if article.path.suffix.lower() in PLAIN:
        blocks = list(plain_blocks(text))
    else:
        if front := front_matter(text):
            title, fields = front.title, kept_fields(names, front.others)
            if front.fault:
                yield Rejected("line", "", front.fault, f"{article.name}:1", text[: front.length])
            # Keeps its lines, so that line numbers of blocks match the file.
            text = "\n" * text.count("\n", 0, front.length) + text[front.length :]
        blocks = list(markdown_blocks(text))
    for block in blocks:
        block.line = lines.number(block.line)
    yield from article.rows(blocks, article.path.stem, title, fields)
