"""Parts of the data sets as sources of `stillhouse new`: every passage that answers one of the questions is there.

Sampling is the same at every call, so all runs on a part share its passages and its dev and test questions.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.faq_articles import faq_articles

Qrels = dict[str, dict[str, str]]
"""Query id -> passage id -> grade, as written."""


@dataclass(frozen=True)
class Size:
    """How much of a corpus is read: passages, and questions of each split, at most."""

    passages: int
    train: int
    dev: int
    test: int


def beir_source(name: str, size: Size, data: Path, folder: Path) -> None:
    """A part of a BEIR folder."""
    source = data / name
    judged = {split: read_qrels(source / "qrels" / f"{split}.tsv") for split in ("train", "dev", "test")}
    if not judged["dev"]:  # SciFact has none: some of the train questions
        names = shuffled(judged["train"])[: size.dev]
        judged["dev"] = {name: judged["train"].pop(name) for name in names}
    kept = {split: {name: of[name] for name in shuffled(of)[: vars(size)[split]]} for split, of in judged.items()}
    needed = {passage for of in kept.values() for passages in of.values() for passage in passages}
    others = [row["_id"] for row in rows(source / "corpus.jsonl") if row["_id"] not in needed]
    needed |= set(random.Random(0).sample(others, max(0, min(len(others), size.passages - len(needed)))))
    wanted = {name for of in kept.values() for name in of}
    write(folder / "corpus.jsonl", (row for row in rows(source / "corpus.jsonl") if row["_id"] in needed))
    write(folder / "queries.jsonl", (row for row in rows(source / "queries.jsonl") if row["_id"] in wanted))
    write_qrels(folder, kept)


def article_source(name: str, size: Size, data: Path, folder: Path) -> None:
    """A part of a folder of articles."""
    question_headings(rows(data / name / "articles.jsonl"), size, folder)


def faq_source(size: Size, _data: Path, folder: Path) -> None:
    question_headings(faq_articles(), size, folder)


def question_headings(articles: Iterable[dict[str, Any]], size: Size, folder: Path) -> None:
    """The sections of articles; headings that end with a question mark are the questions about their own text."""
    passages: dict[str, dict[str, str]] = {}
    headings: dict[str, str] = {}
    for article in articles:
        for number, section in enumerate(article["sections"]):
            text, passage = " ".join(section["paragraphs"]), f"{article['_id']} {number}".replace(" ", "_")
            if len(text.split()) >= 15 and passage not in passages:  # 171 articles of MDN share an id
                passages[passage] = {"_id": passage, "title": article["title"], "text": text}
                if re.fullmatch(r"\S+(\s+\S+){3,}\?", heading := (section["heading"] or "").strip()):
                    headings[passage] = heading
    rng = random.Random(0)
    asked = rng.sample(sorted(headings), min(size.test + size.dev + size.train, len(headings)))
    kept = set(asked)
    others = [passage for passage in passages if passage not in kept]
    kept |= set(rng.sample(others, min(len(others), size.passages - len(asked))))
    write(folder / "corpus.jsonl", (row for passage, row in passages.items() if passage in kept))
    write(folder / "queries.jsonl", ({"_id": passage, "text": headings[passage]} for passage in sorted(asked)))
    parts = {"test": asked[: size.test], "dev": asked[size.test :][: size.dev], "train": asked[size.test + size.dev :]}
    write_qrels(folder, {split: {passage: {passage: "1"} for passage in sorted(of)} for split, of in parts.items()})


def xquad_source(language: str, size: Size, data: Path, folder: Path) -> None:
    """XQuAD's articles: the first have the test questions, the next the dev questions, the others the train ones."""
    with gzip.open(data / "xquad" / f"xquad.{language}.json.gz", "rt", encoding="utf-8") as file:
        articles: list[dict[str, Any]] = json.load(file)["data"]
    for split in ("test", "dev", "train"):
        left, part = vars(size)[split], []
        while articles and (count := sum(len(paragraph["qas"]) for paragraph in articles[0]["paragraphs"])) <= left:
            part.append(articles.pop(0))
            left -= count
        if part:
            (folder / f"{split}.json").write_text(json.dumps({"data": part}), encoding="utf-8")


def shuffled(names: Iterable[str]) -> list[str]:
    known = sorted(names)
    return random.Random(0).sample(known, len(known))


def read_qrels(path: Path) -> Qrels:
    """The positive judgements of a split; empty where there is no such file."""
    found: Qrels = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:] if path.is_file() else ():
        query, passage, grade = line.split("\t")
        if int(grade) > 0:
            found.setdefault(query, {})[passage] = grade
    return found


def write_qrels(folder: Path, judged: dict[str, Qrels]) -> None:
    (folder / "qrels").mkdir()
    for split, of in judged.items():
        lines = [f"{name}\t{passage}\t{grade}\n" for name, found in of.items() for passage, grade in found.items()]
        if lines:
            (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Those of a JSONL file, packed or not."""
    packed = path.with_name(f"{path.name}.gz")
    with gzip.open(packed, "rt", encoding="utf-8") if packed.is_file() else path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def write(path: Path, found: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
