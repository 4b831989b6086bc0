"""Files that people have without knowing any format: one table, one document, texts without ids, a saved data set."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from sources_to_damage import lines, parquet

from stillhouse.corpus.cleaning import CleanCorpus, clean
from stillhouse.corpus.sources.detect import open_source

ASKED = {"how tall is it": "It is nine metres tall.", "who sells it": "A shop, in the harbour."}
TEXTS = list(ASKED.values())


def table(header: list[str], delimiter: str = ",") -> bytes:
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter).writerows([header, *ASKED.items()])
    return file.getvalue().encode()


SQUAD = [{"question": q, "context": a, "answers": {"text": [a[:5]], "answer_start": [0]}} for q, a in ASKED.items()]
TRIPLE = {
    "queries": {f"q{n}": query for n, query in enumerate(ASKED)},
    "corpus": {f"p{n}": text for n, text in enumerate(TEXTS)},
    "relevant_docs": {f"q{n}": [f"p{n}"] for n in range(len(ASKED))},
    "mode": "text",
}
GRADED = TRIPLE | {
    "corpus": {f"p{n}": {"title": "", "text": text} for n, text in enumerate(TEXTS)},
    "relevant_docs": {f"q{n}": {f"p{n}": 1} for n in range(len(ASKED))},
}
LABELLED = {
    "capitals.csv": table(["Question", "Answer"]),
    "bars.csv": table(["question", "answer"], "|"),
    "squad-of-datasets.jsonl": lines(*SQUAD),
    "squad-of-datasets.parquet": parquet({name: [row[name] for row in SQUAD] for name in SQUAD[0]}),
    "llama-index.json": json.dumps(TRIPLE, indent=2).encode(),
    "graded.json": json.dumps(GRADED).encode(),
}
PASSAGES = {
    "texts.json": json.dumps(TEXTS).encode(),
    "objects.json": json.dumps([{"body": text} for text in TEXTS]).encode(),
    "langchain.jsonl": lines(*[{"page_content": text, "metadata": {}} for text in TEXTS]),
    "without-ids.parquet": parquet({"Text": TEXTS}),
    "one-document.md": "\n\n".join(["# It", *TEXTS]).encode(),
    "one-document.rst": "\n\n".join(["It\n==", ".. note::", *TEXTS]).encode(),
}


def read(source: Path) -> CleanCorpus:
    corpus = clean(open_source(str(source)).rows())
    assert not corpus.rejected
    return corpus


def texts(corpus: CleanCorpus) -> dict[str, str]:
    return {row.id: row.text for row in corpus.passages.values()}


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize("as_folder", [False, True])
def test_questions_with_their_passages(name: str, as_folder: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(LABELLED[name])
    corpus = read(tmp_path if as_folder else tmp_path / name)
    text_of = texts(corpus)
    found = {corpus.queries[qrel.query_id].text: text_of[qrel.passage_id] for qrel, _ in corpus.qrels}
    assert found == ASKED and set(corpus.split_of.values()) == {"train"}


@pytest.mark.usefixtures("paragraphs_apart")
def test_sections_of_one_document_are_its_articles(tmp_path: Path) -> None:
    (tmp_path / "it.md").write_text("# It\n\n## How tall\n\nNine.\n\nTen.\n\n## Who sells\n\nA shop.")
    articles = [row.article_id for row in read(tmp_path / "it.md").passages.values()]
    assert articles == ["it/How%20tall", "it/How%20tall", "it/Who%20sells"]
    assert {row.article_id for row in read(tmp_path).passages.values()} == {"it"}


@pytest.mark.usefixtures("paragraphs_apart")
@pytest.mark.parametrize("name", PASSAGES)
@pytest.mark.parametrize("as_folder", [False, True])
def test_passages_without_ids(name: str, as_folder: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(PASSAGES[name])
    found = texts(read(tmp_path if as_folder else tmp_path / name))
    assert list(found.values()) == TEXTS
