"""The commands of docs/serve.md, which start services and query them with curl."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx2
import pytest
from documented_commands import section
from not_run import runs
from released_repositories import Repository
from served_commands import Served
from serving_releases import fields_of
from terminal import Terminal

from stillhouse.corpus.store import Corpus

REPLACED = {
    "git+https://git.example/search/releases.git": "",  # the address of the tests' repository
    "v1.2.0": "v1.0.0",
    "http://retriever.stillhouse.example.com": "http://localhost:8000",
}
PAGE = "docs/serve.md"


@pytest.fixture
def terminal(
    released: Repository, two_releases: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: Served
) -> Terminal:
    """A terminal in a clone of a repository with two releases, also a workspace with a winner in artifacts/best."""
    folder = tmp_path / "search"
    shutil.copytree(released.work, folder, symlinks=True)
    shutil.rmtree(folder / "artifacts")
    shutil.copytree(two_releases[0], folder / "artifacts" / "best")
    (folder / "artifacts" / "ingest").mkdir()
    (folder / "artifacts" / "best" / "corpus").rename(folder / "artifacts" / "ingest" / "corpus")
    shutil.copytree(two_releases[1], folder / "in-use")
    replaced = REPLACED | {"git+https://git.example/search/releases.git": f"git+{released.address}"}
    served.terminal = Terminal(folder, monkeypatch, replaced, {"stillhouse": served})
    return served.terminal


def asked(served: Served, path: str) -> dict[str, Any]:
    with httpx2.Client(trust_env=False) as client:
        answer = client.get(f"http://{served.address}{path}")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def test_a_release_is_served_from_a_workspace_a_fetched_folder_and_a_repository(
    terminal: Terminal, served: Served
) -> None:
    shutil.rmtree("in-use")
    questions = [*section(PAGE, "Search"), *section("docs/deploy.md", "With KServe", having="curl")]
    versions = []
    for start in [*section(PAGE, "Serve: search over HTTP"), *section(PAGE, "Releases of a git repository")]:
        if start.program != "stillhouse" or not runs(start):
            continue
        terminal.type(start)
        said, inferred = (json.loads(text) for text in terminal.type_all(questions).values())
        assert len(said["answers"][0]["hits"]) == 3 and said["release"]
        [output] = inferred["outputs"]
        assert (output["name"], output["shape"]) == ("embedding", [1, 32])
        versions.append(asked(served, "/info").get("version"))
    assert [words[:1] for words in served.started[:2]] == [[], ["in-use"]]
    assert versions == [None, None, "v1.1.0", "v1.1.0", "v1.0.0"]


def test_a_search_is_limited_by_fields(terminal: Terminal, served: Served) -> None:
    rows = [{"id": str(n), "text": f"bird {n}", "product": "vpn", "date": f"2024-0{n}-01"} for n in range(1, 4)]
    Path("handbook.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    terminal.type(section(PAGE, "Serve: search over HTTP")[1])
    _, typed, asked = terminal.type_all(section("docs/documents.md", "Fields")).values()
    assert Corpus.open("corpus").fields.to_pylist() == [
        {"product": row["product"], "date": row["date"]} for row in rows
    ]
    found = [hit["fields"] for hit in json.loads(asked)["answers"][0]["hits"]]
    met = [fields for n in range(24) if (fields := fields_of(n))["date"] and fields["date"] >= "2024-03-01"]
    assert len(found) == 10 and all(fields in met for fields in found)
    assert typed.count("product: vpn") + typed.count("product: mail") == typed.count("date: 2024-0") == 5


def test_what_is_asked_is_kept_voted_on_and_exported(terminal: Terminal, served: Served) -> None:
    """The page's client and two others vote. A train query needs three votes."""
    start, feedback = section(PAGE, "Logging queries")
    terminal.type(start)
    found: dict[str, Any] = {}
    while not found.get("query_id"):  # one of ten queries is kept
        with httpx2.Client(trust_env=False) as client:
            answer = client.post(f"http://{served.address}/search", json={"query": "where does the red bird sing"})
        [found] = answer.json()["answers"]
    passage = found["hits"][0]["passage_id"]
    terminal.replaced |= {"5f0c…": found["query_id"], "longitude-3": passage}
    terminal.type(feedback)
    vote = {"query_id": found["query_id"], "passage_id": passage, "kind": "click"}
    for place in ("127.0.0.2", "127.0.0.3"):
        with httpx2.Client(transport=httpx2.HTTPTransport(local_address=place), trust_env=False) as client:
            assert client.post(f"http://{served.address}/feedback", json=vote).status_code == 200
    terminal.type_all(section(PAGE, "Feedback becomes train queries", having="export"))
    [query] = map(json.loads, Path("clicked/queries.jsonl").read_text().splitlines())
    assert query["text"] == "where does the red bird sing"
    assert Path("clicked/qrels/train.tsv").read_text().splitlines()[1].split("\t")[1] == passage
