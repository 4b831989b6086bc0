"""The training files of FlagEmbedding, Tevatron, sentence-transformers and DPR as labelled corpora."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from stillhouse.core.errors import InputError
from stillhouse.corpus.cleaning import CleanCorpus, clean
from stillhouse.corpus.first_look import look_at
from stillhouse.corpus.sources.detect import open_source
from stillhouse.pipeline.recipe_choice import recipe_for

# question → (right passages, wrong passages)
QUESTIONS = {
    "who built it": (["a mason built it"], ["it is red", "rivers flow"]),
    "where is it": (["it is by the sea", "it is, on the coast"], ["a mason built it"]),
    "why is it red": (["it is red\nbecause of rust"], ["rivers flow"]),
}
PLAIN = [(query, right, wrong) for query, (right, wrong) in QUESTIONS.items()]
PAIRED = [(query, text, wrong) for query, right, wrong in PLAIN for text in right]
DEEP = [(query, text, {f"negative_{n}": each for n, each in enumerate(wrong, 1)}) for query, text, wrong in PAIRED]


def passages(texts: Iterable[str], id: str) -> list[dict[str, str]]:
    return [{id: text.replace(" ", "-").replace("\n", "-"), "title": "", "text": text} for text in texts]


ROWS: Mapping[str, list[dict[str, Any]]] = {
    "FlagEmbedding": [{"query": q, "pos": r, "neg": w, "prompt": "", "pos_scores": [1]} for q, r, w in PLAIN],
    "Tevatron": [
        {
            "query_id": f"t{number}",
            "query": query,
            "positive_passages": passages(right, "docid"),
            "negative_passages": passages(wrong, "docid"),
        }
        for number, (query, right, wrong) in enumerate(PLAIN)
    ],
    "DPR": [
        {
            "question": query,
            "answers": [],
            "positive_ctxs": passages(right, "passage_id"),
            "negative_ctxs": [],
            "hard_negative_ctxs": passages(wrong, "passage_id"),
        }
        for query, right, wrong in PLAIN
    ],
    "numbered negatives": [{"anchor": q, "positive": text, **wrong} for q, text, wrong in DEEP],
    "triplets": [{"anchor": q, "positive": t, "negative": each} for q, t, wrong in PAIRED for each in wrong],
    "question and answer": [{"question": q, "answer": t, "negative": each} for q, t, wrong in PAIRED for each in wrong],
}
LISTS = ("FlagEmbedding", "Tevatron", "DPR")


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    plain = path.name.removesuffix(".gz")
    if plain.endswith(".parquet"):
        pd.DataFrame(rows).to_parquet(path)
        return path
    if plain.endswith(".json"):
        text = json.dumps(rows, indent=1)
    elif plain.endswith(".jsonl"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        file = io.StringIO()
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(file, names, delimiter="\t" if plain.endswith(".tsv") else ",")
        writer.writeheader()
        writer.writerows(rows)
        text = file.getvalue()
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def read(location: Path) -> CleanCorpus:
    opened = open_source(str(location))
    assert opened.format == "training"
    return clean(opened.rows())


def found(corpus: CleanCorpus) -> dict[str, tuple[list[str], list[str]]]:
    """What `QUESTIONS` holds, from a corpus: the texts of each question's passages by grade."""
    text_of = {row.id: row.text for row in corpus.passages.values()}
    result: dict[str, tuple[list[str], list[str]]] = {query.text: ([], []) for query in corpus.queries.values()}
    for row, relevance in corpus.qrels:
        result[corpus.queries[row.query_id].text][relevance == 0].append(text_of[row.passage_id])
    return result


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "json", "csv", "tsv.gz", "parquet"])
def test_questions_and_their_right_and_wrong_passages_are_read(kind: str, suffix: str, tmp_path: Path) -> None:
    if kind in LISTS and suffix in ("csv", "tsv.gz"):
        return  # a cell holds no list
    corpus = read(write(tmp_path / f"data.{suffix}", ROWS[kind]))
    assert found(corpus) == QUESTIONS and not corpus.rejected
    texts = [row.text for row in corpus.passages.values()]
    assert sorted(texts) == sorted({text for both in QUESTIONS.values() for part in both for text in part})
    assert set(corpus.split_of.values()) == {"train"}
    if kind == "Tevatron":
        assert list(corpus.queries) == ["t0", "t1", "t2"] and "rivers-flow" in set(corpus.passages)


def test_pairs_alone_and_a_folder_with_splits(tmp_path: Path) -> None:
    rows = [{"anchor": query, "positive": text} for query, text, _ in PAIRED]
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "train-00000-of-00001.parquet", rows[:1])
    write(tmp_path / "data" / "validation-00000-of-00001.parquet", rows[1:3])
    write(tmp_path / "data" / "test.csv", rows[3:])
    (tmp_path / "README.md").write_text("# A data set\n\nIts description is no article.\n")
    corpus = read(tmp_path)
    assert {corpus.queries[id].text: split for id, split in corpus.split_of.items()} == {
        "who built it": "train",
        "where is it": "dev",
        "why is it red": "test",
    }
    assert {query: right for query, (right, _) in found(corpus).items()} == {q: r for q, r, _ in PLAIN}
    look = look_at(str(tmp_path))
    assert look.questions == {"train": 1, "dev": 1, "test": 1} and recipe_for(look) == "labelled"


def test_a_passage_that_another_row_calls_right_is_no_negative(tmp_path: Path) -> None:
    rows = [{"query": "who", "pos": ["I"], "neg": ["you", "he"]}, {"query": "who", "pos": ["you"], "neg": [""]}]
    corpus = read(write(tmp_path / "train.jsonl", rows))
    assert found(corpus) == {"who": (["I", "you"], ["he"])} and not corpus.rejected
    assert sum(corpus.left_out.values()) == 1


def test_rows_that_are_no_questions_are_rejected_and_the_rest_is_read(tmp_path: Path) -> None:
    good = {"query_id": "a", "query": "who", "pos": ["I"], "neg": []}
    bad = [{"query_id": "b", "query": "what", "pos": []}, {"query_id": "a", "query": "another", "pos": ["it"]}]
    corpus = read(write(tmp_path / "train.jsonl", [good, *bad, {**good, "query_id": "c", "query": 5}]))
    assert found(corpus) == {"who": (["I"], [])}
    reasons = ["no pos", "duplicate id, different text", "query is not text"]
    assert [row.reason for row in corpus.rejected] == reasons
    assert {note.partition(" × query: ")[2] for note in look_at(str(tmp_path)).notes} >= {*reasons[1:]}


def test_each_file_numbers_its_own_questions(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        rows = [{"id": number, "query": f"{split} {number}", "pos": [f"{split} is {number}"]} for number in range(3)]
        write(tmp_path / f"{split}.jsonl", rows)
    write(tmp_path / "train.csv", [{"query": "more", "positive": "yes"}])
    write(tmp_path / "train.tsv.gz", [{"query": "other", "positive": "no"}])
    corpus = read(tmp_path)
    assert Counter(corpus.split_of.values()) == {"train": 5, "dev": 3, "test": 3} and not corpus.rejected
    assert {text: right for text, (right, _) in found(corpus).items()}["dev 1"] == ["dev is 1"]


def test_files_that_would_be_left_out_are_named_or_refused(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", ROWS["triplets"])
    (tmp_path / "dev.csv").write_text("left,right\na,b\n")
    with pytest.raises(InputError, match=r"dev.csv has not the columns of a training file"):
        open_source(str(tmp_path))
    (tmp_path / "dev.csv").rename(tmp_path / "of.md")
    assert open_source(str(tmp_path)).notes == ("read as training; not read: 1 .md file",)
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "text": "one"}\n')
    with pytest.raises(InputError, match=r"train.jsonl has questions, which are not read beside corpus.jsonl"):
        open_source(str(tmp_path))
