"""The built-in sample matches its README: size, links, splits by article, questions in words of their own."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from pathlib import Path

import bm25s
import pytest
import Stemmer

from stillhouse.corpus.store import Corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    from stillhouse.pipeline.steps.execute import execute
    from stillhouse.pipeline.steps.registry import find_step

    step = find_step("ingest")
    folder = tmp_path_factory.mktemp("sample") / "corpus"
    execute(step, step.config(source="sample"), {}, {"corpus": folder})
    return Corpus.open(folder)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def content_words(text: str) -> set[str]:
    stemmer = Stemmer.Stemmer("english")
    return set(bm25s.tokenize([text], stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False)[0])


def test_the_sample_has_its_documented_size_and_no_rejects(corpus: Corpus) -> None:
    assert corpus.passages["article_id"].nunique() == 44
    assert len(corpus.passages) == 257 and len(corpus.queries) == 655 and len(corpus.rejected) == 0


def test_every_article_has_sections_and_links(corpus: Corpus) -> None:
    sections = corpus.passages.groupby("article_id")["section"].nunique()
    assert (sections >= 2).all()
    assert set(corpus.links["source"]) == set(corpus.passages["article_id"])


def test_splits_are_by_article(corpus: Corpus) -> None:
    article = corpus.passages.set_index("passage_id")["article_id"]
    splits = corpus.qrels.assign(article=corpus.qrels["passage_id"].map(article)).groupby("article")["split"].nunique()
    assert (splits == 1).all() and len(splits) == 44


def test_no_two_passages_share_eight_consecutive_words(corpus: Corpus) -> None:
    seen: Counter[tuple[str, ...]] = Counter()
    for text in corpus.passages["text"]:
        tokens = words(text)
        seen.update({tuple(tokens[start : start + 8]) for start in range(len(tokens) - 7)})
    assert [gram for gram, count in seen.items() if count > 1] == []


def test_questions_are_not_their_passages_words(corpus: Corpus) -> None:
    texts = corpus.passages.set_index("passage_id")
    questions = corpus.queries.set_index("query_id")["text"]
    shares = []
    for qrel in corpus.qrels.itertuples():
        question = content_words(questions[qrel.query_id])
        passage = content_words(f"{texts.loc[qrel.passage_id, 'title']} {texts.loc[qrel.passage_id, 'text']}")
        shares.append(len(question & passage) / len(question))
    assert statistics.median(shares) < 0.4


def test_the_sample_is_plain_text_and_small() -> None:
    import stillhouse

    folder = Path(stillhouse.__file__).parent / "sample"
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 500_000
