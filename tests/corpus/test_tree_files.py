"""Files of a tree that are not read: names that are not UTF-8, and links that leave the source."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stillhouse.core.errors import InputError
from stillhouse.corpus.cleaning import CleanCorpus
from stillhouse.corpus.sources.detect import open_source

Write, Read = Callable[..., Path], Callable[..., CleanCorpus]
BAD = os.fsdecode(b"caf\xe9")


def texts(corpus: CleanCorpus) -> dict[str, str]:
    return {row.id: row.text for row in corpus.passages.values()}


def rejected(corpus: CleanCorpus) -> dict[str, str]:
    """Map each rejected file to the first part of the reason."""
    return {row.where: row.reason.partition(";")[0] for row in corpus.rejected}


def test_a_name_that_is_not_utf8_is_refused(write: Write) -> None:
    source = write(dict.fromkeys(["good.md", f"{BAD}/within.md"], "Some words."))
    with pytest.raises(InputError, match=r"the file name .*within.md' is not UTF-8; rename it"):
        open_source(str(source))


def linked(folder: Path, links: dict[str, str | Path]) -> Path:
    for name, target in links.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)
    return folder


OUT = "a link out of the source, to nowhere or to a folder"


def test_a_link_out_of_the_source_is_rejected(write: Write, read: Read, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "passwd").write_text("root")
    (secret / "a.md").write_text("root")
    links: dict[str, str | Path] = {
        "passwd.txt": secret / "passwd",
        "relative.md": "../secret/a.md",
        "chain.md": "passwd.txt",
        "deep/up.md": "../../secret/a.md",
        "folder": secret,
        "deep/folder": "../../secret",
        "through": "deep/../..",
        "round.md": "../source/../secret/a.md",
        "picture.png": secret / "passwd",
        "gone.md": "no.md",
        "one.md": "two.md",
        "two.md": "one.md",
    }
    corpus = read(linked(write({"tea.md": "Tea.", "deep/leaf.md": "Leaf."}), links))
    assert texts(corpus) == {"deep/leaf#1": "Leaf.", "tea#1": "Tea."}
    assert rejected(corpus) == {name: OUT for name in links if name != "picture.png"}


def test_links_to_files_within_the_source_are_followed_and_those_to_folders_rejected(write: Write, read: Read) -> None:
    links: dict[str, str | Path] = {
        "copy.md": "deep/leaf.md",
        "chain.md": "copy.md",
        "out_and_back.md": "../source/tea.md",
        "hidden.md": ".store/note",
        "latest": "deep",
        "deep/up": "..",
    }
    files = {"tea.md": "Tea.", "deep/leaf.md": "Leaf.", ".store/note": "Note."}
    corpus = read(linked(write(files), links))
    assert texts(corpus) == {
        "chain#1": "Leaf.",
        "copy#1": "Leaf.",
        "deep/leaf#1": "Leaf.",
        "hidden#1": "Note.",
        "out_and_back#1": "Tea.",
        "tea#1": "Tea.",
    }
    assert rejected(corpus) == {"deep/up": OUT, "latest": OUT}


def test_unreadable_files_and_folders_are_rejected(write: Write, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's errors are faked, because the user who runs the tests may read everything."""

    def closed(of: object, method: str) -> None:
        of_path = getattr(of, method)

        def refuse(path: Path) -> object:
            if not isinstance(path, int) and Path(path).name.startswith("closed"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return of_path(path)

        monkeypatch.setattr(of, method, refuse)

    folder = write({"a.md": "A.", "closed.md": "B.", "closed_folder/c.md": "C."})
    closed(os, "scandir")
    closed(Path, "read_bytes")
    corpus = read(folder)
    assert texts(corpus) == {"a#1": "A."}
    denied = "cannot be read: Permission denied"
    assert rejected(corpus) == {"closed.md:1": denied, "closed_folder": denied}


def test_articles_and_labels_may_not_link_out_of_the_source(write: Write, tmp_path: Path) -> None:
    write({"a.md": "A."}, folder="elsewhere")
    source = tmp_path / "source"
    source.mkdir()
    (source / "articles").symlink_to("../elsewhere")
    with pytest.raises(InputError, match=r"articles links out of the source; give its target"):
        open_source(str(source), "article-tree")
    (source / "articles").unlink()
    write({"a.md": "A."})
    (source / "queries.jsonl").symlink_to("/etc/passwd")
    with pytest.raises(InputError, match=r"queries.jsonl links out of the source; put the file itself there"):
        open_source(str(source))
