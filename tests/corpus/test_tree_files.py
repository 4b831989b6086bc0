"""Files of a tree that are not read: names that are not UTF-8, and links that leave the source or loop."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stillhouse.core.errors import InputError
from stillhouse.corpus.cleaning import CleanCorpus
from stillhouse.corpus.ingestion import Choices, ingest_source
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.store import Corpus

Write, Read = Callable[..., Path], Callable[..., CleanCorpus]
SUFFIXES = ("md", "txt", "html")
BAD = os.fsdecode(b"caf\xe9")


def texts(corpus: CleanCorpus) -> dict[str, str]:
    return {row.id: row.text for row in corpus.passages.values()}


def rejected(corpus: CleanCorpus) -> dict[str, str]:
    """Map each rejected file to the first part of the reason."""
    return {row.where: row.reason.partition(";")[0] for row in corpus.rejected}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_name_that_is_not_utf8_is_rejected_and_the_rest_is_ingested(
    suffix: str, write: Write, tmp_path: Path
) -> None:
    names = [f"good.{suffix}", f"{BAD}.{suffix}", f"{BAD}/within.{suffix}", f"caf\u00e9/too.{suffix}"]
    source = open_source(str(write(dict.fromkeys(names, "Some words."))))
    (tmp_path / "corpus").mkdir()
    facts = ingest_source(source, Choices(max_queries={}, seed=0), tmp_path / "corpus")
    assert facts["rejected"] == {"passage: file name is not UTF-8; rename it": 2}
    corpus = Corpus.open(tmp_path / "corpus")
    assert list(corpus.passages["passage_id"]) == ["caf\u00e9/too#1", "good#1"]
    assert list(corpus.rejected["where"]) == [rf"caf\xe9.{suffix}", rf"caf\xe9/within.{suffix}"]
    assert list(corpus.rejected["id"]) == [r"caf\xe9", r"caf\xe9/within"]


OTHERS = {
    "tables": ({"passages.csv": "id,text\na,x\n"}, "passages." + BAD + ".csv"),
    "parts": ({"passages/1.csv": "id,text\na,x\n"}, f"passages/{BAD}.csv"),
    "msmarco": ({"collection.tsv": "a\tx\n"}, f"queries.{BAD}.train.tsv"),
    "dpr": ({"psgs_w100.tsv": "id\ttext\ttitle\na\tx\tt\n"}, f"{BAD}-train.json"),
    "squad": (
        {"train.json": '{"data": [{"title": "a", "paragraphs": [{"context": "x", "qas": []}]}]}'},
        f"dev-{BAD}.json",
    ),
    "labels": (
        {"corpus.jsonl": '{"_id": "a", "text": "x"}\n', "queries.jsonl": '{"_id": "q", "text": "x"}\n'},
        f"qrels/{BAD}.tsv",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_formats_that_list_a_folder_reject_such_names_too(name: str, write: Write, tmp_path: Path) -> None:
    files, other = OTHERS[name]
    (tmp_path / "corpus").mkdir()
    source = open_source(str(write({**files, other: "x"})))
    facts = ingest_source(source, Choices(max_queries={}, seed=0), tmp_path / "corpus")
    assert facts["passages"] == 1 and facts["rejected"]["line: file name is not UTF-8; rename it"] == 1


def linked(folder: Path, links: dict[str, str | Path]) -> Path:
    for name, target in links.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)
    return folder


OUT, NOWHERE = "a link that leads out of the source", "a link that leads nowhere"


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
    nowhere = ("gone.md", "one.md", "two.md")
    assert rejected(corpus) == {
        **{name: OUT for name in links if name not in (*nowhere, "picture.png")},
        **dict.fromkeys(nowhere, NOWHERE),
    }


def test_links_within_the_source_are_followed_and_do_not_loop(write: Write, read: Read) -> None:
    links: dict[str, str | Path] = {
        "copy.md": "deep/leaf.md",
        "chain.md": "copy.md",
        "out_and_back.md": "../source/tea.md",
        "hidden.md": ".store/note",
        "latest": "deep",
        "again": "latest",
        "self": ".",
        "deep/up": "..",
        "deep/back": "../deep",
    }
    files = {"tea.md": "Tea.", "deep/leaf.md": "Leaf.", ".store/note": "Note.", "other/x.md": "X."}
    corpus = read(linked(write(files), links | {"other/to": "../deep"}))
    assert texts(corpus) == {
        "again/leaf#1": "Leaf.",
        "chain#1": "Leaf.",
        "copy#1": "Leaf.",
        "deep/leaf#1": "Leaf.",
        "hidden#1": "Note.",
        "other/x#1": "X.",
        "out_and_back#1": "Tea.",
        "tea#1": "Tea.",
    }
    loops, twice = "a link to a folder that it lies in", "a link to a folder that another link leads to"
    assert rejected(corpus) == {
        "again/back": loops,
        "again/up": loops,
        "deep/back": loops,
        "deep/up": loops,
        "latest": twice,
        "other/to": twice,
        "self": loops,
    }


def test_unreadable_files_and_folders_are_rejected(write: Write, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's errors are faked, because the user who runs the tests may read everything."""

    def closed(method: str) -> None:
        of_path = getattr(Path, method)

        def refuse(path: Path) -> object:
            if path.name.startswith("closed"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return of_path(path)

        monkeypatch.setattr(Path, method, refuse)

    folder = write({"a.md": "A.", "closed.md": "B.", "closed_folder/c.md": "C."})
    closed("iterdir")
    closed("read_bytes")
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
