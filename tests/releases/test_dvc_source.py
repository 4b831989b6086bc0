"""Data of a DVC repository at a revision: `ingest` reads it and records the revision."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
import yaml
from git_identity import set_git_identity
from repositories import call, commit_data, make_repository

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import InputError
from stillhouse.core.remote.dvc_source import fetch, look_up
from stillhouse.corpus.settings import IngestSettings as Config
from stillhouse.corpus.store import Corpus
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.ingest import STEP
from stillhouse.pipeline.steps.places import read_outside

ARTICLES = {
    f"{name}.md": f"# {name}\n\nThe {name} is an animal that lives in many places.\n" for name in ("bat", "owl")
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A repository with two revisions of `articles`, and their commits."""
    folder = tmp_path_factory.mktemp("versions")
    with pytest.MonkeyPatch.context() as patch:
        set_git_identity(patch)
        made = make_repository(folder / "animals", folder / "storage")
        first = commit_data(made, "articles", ARTICLES, "Two animals")
        return made, first, commit_data(made, "articles", {"fox.md": "# fox\n\nThe fox is a third animal.\n"}, "A fox")


@pytest.mark.parametrize(("revision", "passages"), [("", 3), ("main", 3), ("first", 2)])
def test_ingest_reads_a_revision_and_records_it(
    revision: str, passages: int, repository: tuple[Path, str, str], tmp_path: Path
) -> None:
    folder, first, second = repository
    config = Config(repo=str(folder), revision=first if revision == "first" else revision, source="articles")
    execute(STEP, config, {}, {"corpus": tmp_path / "corpus"})
    assert Corpus.open(tmp_path / "corpus").passage_count == passages
    versioned = read_manifest(tmp_path / "corpus").facts["versioned"]
    assert versioned["commit"] == (first if revision == "first" else second)
    entry = yaml.safe_load(call(folder, "git", "show", f"{versioned['commit']}:articles.dvc"))
    assert versioned["digest"] == entry["outs"][0]["md5"], "as DVC itself wrote it"
    assert str(tmp_path) not in (tmp_path / "corpus" / "manifest.json").read_text(), "no place of this machine"


def test_the_earlier_fetch_stays_until_the_new_one_is_complete(
    repository: tuple[Path, str, str], tmp_path: Path
) -> None:
    folder, first, _ = repository
    fetch(str(folder), first, {"articles": tmp_path / "articles"})
    for repo, revision in ((str(folder), "v9"), ("file:///nowhere", "main")):
        with pytest.raises(InputError):
            fetch(repo, revision, {"articles": tmp_path / "articles"})
    assert sorted(path.name for path in (tmp_path / "articles").iterdir()) == ["bat.md", "owl.md"]
    fetch(str(folder), "main", {"articles": tmp_path / "articles"})
    assert (tmp_path / "articles" / "fox.md").is_file() and [path.name for path in tmp_path.iterdir()] == ["articles"]


def test_no_clone_stays_in_the_folder_for_temporary_files(
    repository: tuple[Path, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that looks often, such as a notebook, would fill the disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for repo in (str(repository[0]), f"file://{repository[0]}"):
        assert look_up(repo, "main", "articles") == look_up(repo, "main", "articles")
        with pytest.raises(InputError):
            look_up(repo, "main", "nothing")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"revision": "v9"}, "has no revision 'v9'"),
        ({"source": "article"}, "has no 'article' at revision .*; at its top level: .*articles"),
        ({"source": "/"}, "name the path of .* to use"),
        ({"repo": "nowhere"}, "the repository nowhere does not exist; name a git URL or a folder"),
        (
            {"repo": "file:///nowhere"},
            "cannot read the repository file:///nowhere|cannot read articles of file:///nowh",
        ),
    ],
)
def test_what_does_not_exist_is_refused(
    changes: dict[str, str], message: str, repository: tuple[Path, str, str], tmp_path: Path
) -> None:
    settings = {"repo": str(repository[0]), "source": "articles"} | changes
    with pytest.raises(InputError, match=message):
        execute(STEP, Config(**settings), {}, {"corpus": tmp_path / "corpus"})
    assert not (tmp_path / "corpus").exists()


def test_data_that_were_never_pushed_are_refused_with_the_remedy(
    repository: tuple[Path, str, str], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.git"
    call(tmp_path, "git", "clone", "--quiet", "--bare", str(repository[0]), str(copy))
    hidden = repository[0].parent / "hidden"
    storage = repository[0].parent / "storage"
    storage.rename(hidden)
    try:
        with pytest.raises(InputError, match=r"Is its data pushed .*`dvc push`"):
            fetch(f"file://{copy}", "main", {"articles": tmp_path / "articles"})
    finally:
        shutil.rmtree(storage, ignore_errors=True)
        hidden.rename(storage)
    assert not (tmp_path / "articles").exists()


def test_what_was_read_is_known_of_a_whole_commit_alone() -> None:
    """Another commit, or another path in it, is read again; a branch may hold something else each time."""

    def read(revision: str, path: str = "corpus") -> dict[str, str] | None:
        return read_outside(STEP, Config(repo="https://git.example/corpora.git", revision=revision, source=path))

    assert read("0" * 40) == read("0" * 40) is not None
    assert read("0" * 40) not in (read("1" * 40), read("0" * 40, "other"))
    assert read("main") is None
