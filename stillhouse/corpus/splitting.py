"""Seeded sampling in a clean corpus: fewer articles for a trial run, dev and test drawn from train, fewer queries."""

from collections import Counter
from collections.abc import Mapping, Set
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stillhouse.corpus.cleaning import CleanCorpus, normalise
from stillhouse.corpus.schemas import SPLITS


def sample_articles(corpus: CleanCorpus, limit: int | None, seed: int) -> dict[str, int]:
    """Keeps at most `limit` articles (None = all), their passages, the links among them and the queries about them.

    A passage without an article counts as an article. Returns the number of removed queries in each split.
    """
    if not limit:
        return {}
    own = corpus.passages.own_articles()
    # Arrow sorts by UTF-8 bytes, which is the order of code points.
    articles = pc.unique(own).sort()
    if len(articles) <= limit:
        return {}
    order = np.random.default_rng([seed, len(SPLITS)]).permutation(len(articles))
    kept = articles.take(pa.array(order[:limit]))
    corpus.passages = corpus.passages.kept(pc.is_in(own, value_set=kept).to_numpy())
    names = set(kept.to_pylist())
    corpus.links = dict.fromkeys(link for link in corpus.links if names.issuperset(link))
    found = corpus.passages.rows_of([row.passage_id for row, _ in corpus.qrels]).tolist()
    # Queries that have answers and no qrel ask about the whole corpus.
    answered = {query_id for query_id, _, _ in corpus.answers} - {row.query_id for row, _ in corpus.qrels}
    corpus.qrels = [qrel for qrel, passage in zip(corpus.qrels, found) if passage >= 0]
    judged = {row.query_id for row, relevance in corpus.qrels if relevance > 0}
    return _remove(corpus, corpus.queries.keys() - judged - answered)


def draw_dev(corpus: CleanCorpus, fraction: float, seed: int) -> int:
    """Moves a fraction of the train queries to dev if there are no dev queries; returns how many.

    Queries with the same text move together. At least one text moves and at least one stays.
    """
    if fraction == 0 or "dev" in corpus.split_of.values():
        return 0
    texts = _train_texts(corpus)
    if len(texts) < 2:
        return 0
    count = min(max(round(fraction * len(texts)), 1), len(texts) - 1)
    groups = [texts[text] for text in sorted(texts)]
    chosen = np.random.default_rng([seed, SPLITS.index("dev")]).choice(len(groups), size=count, replace=False)
    return _move(corpus, {id for group in chosen for id in groups[group]}, "dev")


def draw_test(corpus: CleanCorpus, fraction: float, seed: int) -> int:
    """Moves about a fraction of the train queries to test if there are neither dev nor test queries; returns how many.

    A query's text and the seed alone decide, so that no train query becomes a test query as the source grows. Queries
    with the same text move together. At least one text moves and at least one stays.
    """
    if fraction == 0 or {"dev", "test"} & set(corpus.split_of.values()):
        return 0
    texts = _train_texts(corpus)
    if len(texts) < 2:
        return 0
    places = sorted((_place(text, seed), text) for text in texts)
    chosen = [text for place, text in places if place < fraction][: len(texts) - 1] or [places[0][1]]
    return _move(corpus, {id for text in chosen for id in texts[text]}, "test")


def _place(text: str, seed: int) -> float:
    """A number from 0 to 1 that a text and the seed decide."""
    return int.from_bytes(blake2b(f"{seed} {text}".encode(), digest_size=8).digest()) / 2**64


def _train_texts(corpus: CleanCorpus) -> dict[str, list[str]]:
    """The ids of the train queries by their text, as texts are compared."""
    texts: dict[str, list[str]] = {}
    for id in sorted(id for id, split in corpus.split_of.items() if split == "train"):
        texts.setdefault(normalise(corpus.queries[id].text), []).append(id)
    return texts


def _move(corpus: CleanCorpus, moved: Set[str], split: str) -> int:
    """Moves queries with their qrels to another split; returns how many."""
    for id in moved:
        corpus.split_of[id] = split
    corpus.qrels = [
        (row._replace(split=split) if row.query_id in moved else row, relevance) for row, relevance in corpus.qrels
    ]
    return len(moved)


def remove_train(corpus: CleanCorpus) -> int:
    """Removes the train queries and their qrels; returns the number of removed queries."""
    return _remove(corpus, {id for id, split in corpus.split_of.items() if split == "train"}).get("train", 0)


def sample_queries(corpus: CleanCorpus, limits: Mapping[str, int | None], seed: int) -> dict[str, int]:
    """Keeps at most `limits[split]` queries of each split (None = all) and their qrels; returns how many it removed."""
    removed: set[str] = set()
    for split, limit in limits.items():
        ids = sorted(id for id, own in corpus.split_of.items() if own == split)
        if not limit or len(ids) <= limit:
            continue
        order = np.random.default_rng([seed, SPLITS.index(split)]).permutation(len(ids))
        removed |= {ids[i] for i in order[limit:]}
    return _remove(corpus, removed)


def _remove(corpus: CleanCorpus, removed: Set[str]) -> dict[str, int]:
    """Removes queries with their qrels and answers; returns how many of each split."""
    left = Counter(corpus.split_of[id] for id in removed)
    for id in removed:
        del corpus.queries[id], corpus.split_of[id]
    corpus.qrels = [(row, relevance) for row, relevance in corpus.qrels if row.query_id not in removed]
    corpus.answers = dict.fromkeys(key for key in corpus.answers if key[0] not in removed)
    return dict(left)
