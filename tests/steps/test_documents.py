"""The documents of a service join the next corpus: compared with a merge of plain dicts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from stillhouse import cli
from stillhouse.artifacts import read_manifest
from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError
from stillhouse.serving.document_log import DocumentLog
from stillhouse.steps.execute import execute
from stillhouse.steps.registry import find_step

Document = tuple[str, str, str]
"""Title, text and article."""
State = dict[str, Document | None]
Ingest = Callable[..., Corpus]


@pytest.fixture
def passages() -> dict[str, Document]:
    """Four articles of five passages, and one passage that is its own article."""
    found = {f"a{n % 4}-{n // 4}": (f"title {n}", f"text of {n}", f"a{n % 4}") for n in range(20)}
    return found | {"alone": ("", "text alone", "alone")}


@pytest.fixture
def source(tmp_path: Path, passages: Mapping[str, Document]) -> Path:
    """Tables with three passages of code and a query for every passage; every fifth query is a test query."""
    folder = tmp_path / "source"
    folder.mkdir()
    columns = ["passage_id", "title", "text", "article_id", "section", "position"]
    rows = [
        (id, title, text, article, f"section {id[-1]}", int(id[-1]) if "-" in id else 0)
        for id, (title, text, article) in passages.items()
    ]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "passages.csv", index=False)
    queries = [(f"q-{id}", f"asks for {id}") for id in passages]
    pd.DataFrame(queries, columns=["query_id", "text"]).to_csv(folder / "queries.csv", index=False)
    qrels = [(f"q-{id}", id, 1, "train" if n % 5 else "test") for n, id in enumerate(passages)]
    table = pd.DataFrame(qrels, columns=["query_id", "passage_id", "relevance", "split"])
    table.to_csv(folder / "qrels.csv", index=False)
    code = pd.DataFrame({"passage_id": ["a0-0", "a1-1", "a2-2"], "kind": "code"})
    code.to_csv(folder / "not_prose.csv", index=False)
    return folder


@pytest.fixture
def ingest(source: Path, tmp_path: Path) -> Ingest:
    def run(**settings: Any) -> Corpus:
        step = find_step("ingest")
        config = step.config(source=str(source), queries="source", dev_fraction=0.0, **settings)
        execute(step, config, {}, {"corpus": tmp_path / "corpus"})
        return Corpus.open(tmp_path / "corpus")

    return run


def log_documents(folder: Path, changes: State) -> None:
    """One record for each change, as a service writes them."""
    log = DocumentLog(folder)
    for id, change in changes.items():
        if change is None:
            log.append({"put": [], "delete": [id]})
        else:
            title, text, article = change
            document = {"passage_id": id, "article_id": article, "title": title, "text": text}
            log.append({"put": [document], "delete": []})
    log.close()


def drawn(rng: random.Random, known: list[str], name: str) -> State:
    """Random changes: replaced, deleted and new passages, in an article of the source or in one of their own."""
    changes: State = {}
    for n, id in enumerate(rng.sample(known, 8) + [f"{name}{n}" for n in range(4)] + ["never there"]):
        article = rng.choice([id, "a0", "a1"])
        changes[id] = None if n in (0, 1, 2, 12) else (f"new title {name}", f"new text {id}", article)
    return changes


def held(corpus: Corpus) -> list[tuple[str, Document]]:
    rows = corpus.passages[["passage_id", "title", "text", "article_id"]].itertuples(index=False, name=None)
    return [(id, (title, text, article)) for id, title, text, article in rows]


def merged(passages: Mapping[str, Document], changes: State) -> dict[str, Document]:
    """What stays of the source, then the documents, each in order."""
    kept = {id: passage for id, passage in passages.items() if id not in changes}
    return kept | {id: document for id, document in changes.items() if document is not None}


@pytest.mark.parametrize("seed", range(4))
def test_documents_are_merged_into_the_source(
    seed: int, ingest: Ingest, passages: dict[str, Document], tmp_path: Path
) -> None:
    before = ingest()
    changes = drawn(random.Random(seed), list(passages), "n")
    log_documents(tmp_path / "live", changes)
    assert cli.main(["documents", "export", str(tmp_path / "live"), str(tmp_path / "out")]) == 0
    after = ingest(documents=str(tmp_path / "out"))
    wanted = merged(passages, changes)
    assert held(after) == list(wanted.items())
    for split in ("train", "test"):
        judged = before.qrels_of(split)
        kept = judged[judged["passage_id"].isin(list(wanted))]
        assert set(after.qrels_of(split)["passage_id"]) == set(kept["passage_id"])
        assert set(after.queries_of(split)["query_id"]) == set(kept["query_id"])
    facts = read_manifest(tmp_path / "corpus").facts
    gone = len(passages.keys() - wanted.keys())
    assert facts["rejected"]["qrel: points to no passage"] == gone
    assert facts["left_out"]["passage: deleted by the documents"] == gone
    replaced = passages.keys() & {id for id, change in changes.items() if change}
    assert facts["left_out"]["passage: replaced by a document"] == len(replaced)
    code = {"a0-0", "a1-1", "a2-2"}
    assert facts.get("not_prose", {}).get("code", 0) == len(code - changes.keys())


def test_a_document_keeps_the_place_that_it_takes_in_an_article(ingest: Ingest, tmp_path: Path) -> None:
    changes: State = {
        "a0-2": ("t", "replaced in its article", "a0"),
        "a1-2": ("t", "moved to another", "a0"),
        "new": ("t", "added to it", "a0"),
        "a1": ("t", "its id is that of an article", "a1"),
    }
    log_documents(tmp_path / "live", changes)
    assert cli.main(["documents", "export", str(tmp_path / "live"), str(tmp_path / "out")]) == 0
    table = ingest(documents=str(tmp_path / "out")).passages
    places = {row.passage_id: (row.article_id, row.section, row.position) for row in table.itertuples()}
    assert {id: places[id] for id in changes} == {
        "a0-2": ("a0", "section 2", 2),
        "a1-2": ("a0", "", 5),
        "new": ("a0", "", 6),
        "a1": ("a1", "", 5),
    }
    assert not table.duplicated(["article_id", "position"]).any(), "`validate` would refuse the corpus"


@pytest.mark.parametrize("seed", range(4))
def test_a_later_export_goes_onto_an_earlier_one(
    seed: int, ingest: Ingest, passages: dict[str, Document], tmp_path: Path
) -> None:
    rng = random.Random(seed)
    first = drawn(rng, list(passages), "n")
    second = drawn(rng, list(merged(passages, first)), "m")
    for name, changes in (("first", first), ("second", second)):
        log_documents(tmp_path / name, changes)
    assert cli.main(["documents", "export", str(tmp_path / "first"), str(tmp_path / "one")]) == 0
    command = ["documents", "export", str(tmp_path / "second"), str(tmp_path / "both"), "--onto", str(tmp_path / "one")]
    assert cli.main(command) == 0
    corpus = ingest(documents=str(tmp_path / "both"))
    assert held(corpus) == list(merged(merged(passages, first), second).items())


def test_other_documents_make_another_corpus_and_damaged_lines_are_rejected(ingest: Ingest, tmp_path: Path) -> None:
    log_documents(tmp_path / "live", {"new": ("", "one", "new")})
    assert cli.main(["documents", "export", str(tmp_path / "live"), str(tmp_path / "out")]) == 0
    plain = ingest()
    unset = read_manifest(tmp_path / "corpus")
    assert "documents" not in unset.config
    ingest(documents=str(tmp_path / "out"))
    first = read_manifest(tmp_path / "corpus").facts["source_digest"]
    assert first != unset.facts["source_digest"]
    (tmp_path / "out" / "corpus.jsonl").write_text('{"_id": "new", "text": 7}\n')
    (tmp_path / "out" / "deleted.jsonl").write_text("no JSON\n" + json.dumps({"id": "a0-0"}) + "\n")
    corpus = ingest(documents=str(tmp_path / "out"))
    assert read_manifest(tmp_path / "corpus").facts["source_digest"] != first
    assert held(corpus) == held(plain)
    found = corpus.rejected[["where", "reason"]].itertuples(index=False, name=None)
    assert list(found) == [
        ("documents/corpus.jsonl:1", "text is not text"),
        ("documents/deleted.jsonl:1", "not JSON"),
        ("documents/deleted.jsonl:2", "no _id"),
    ]
    onto = ["documents", "export", str(tmp_path / "live"), str(tmp_path / "both"), "--onto", str(tmp_path / "out")]
    assert cli.main(onto) == 2 and not (tmp_path / "both").exists()
    (tmp_path / "out" / "deleted.jsonl").unlink()
    with pytest.raises(InputError, match="documents export"):
        ingest(documents=str(tmp_path / "out"))
