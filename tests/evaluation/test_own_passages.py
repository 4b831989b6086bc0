"""A query's own passage is removed from its ranking and nothing else is, as in a slow version."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stillhouse.corpus.store import Corpus, write_tables
from stillhouse.evaluation.own_passages import same_as, without
from stillhouse.evaluation.runs import read_run


@pytest.mark.parametrize("seed", range(5))
def test_the_rest_equals_that_of_a_loop_over_the_lines(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    names = [f"x{number}" for number in range(12)]
    lines = [(query, passage) for query in names[:8] for passage in rng.permutation(names)[: rng.integers(1, 9)]]
    ranks = pd.DataFrame(lines).groupby(0, sort=False).cumcount() + 1
    path = tmp_path / "test.trec"
    path.write_text("".join(f"{q} Q0 {p} {rank} {-rank} s\n" for (q, p), rank in zip(lines, ranks)))
    # This includes pairs that the run lacks, several pairs for one query, and some relevant pairs.
    own = {(str(rng.choice(names)), str(rng.choice(names))) for _ in range(40)}
    relevant = {(str(rng.choice(names)), str(rng.choice(names))) for _ in range(20)} | set(list(own)[:5])
    qrels = pd.DataFrame(sorted(relevant), columns=["query_id", "passage_id"]).assign(relevance=1)
    qrels.loc[qrels.index[::3], "relevance"] = 0
    right = set(zip(qrels["query_id"][qrels["relevance"] > 0], qrels["passage_id"][qrels["relevance"] > 0]))
    expected: dict[str, list[str]] = {}
    for pair in lines:
        if pair not in own or pair in right:
            expected.setdefault(pair[0], []).append(pair[1])
    left = without(read_run(path), pd.DataFrame(sorted(own), columns=["query_id", "passage_id"]), qrels)
    found: dict[str, list[str]] = {}
    for query, passage, rank in zip(left["query_id"], left["passage_id"], left["rank"]):
        found.setdefault(query, []).append(passage)
        assert rank == len(found[query])
    assert found == expected and len(left) < len(lines)


def test_a_query_is_a_passage_only_if_id_and_text_match(tmp_path: Path) -> None:
    rows = [
        ("1", "", "What is Rust?", "what is  rust?"),  # equal except for case and white space
        ("2", "On Rust", "It is a language.", "On Rust It is a language."),  # equal with the title
        ("3", "On Rust", "It is a language.", "It is a language."),  # equal without the title
        ("4", "", "Iron oxide", "What is rust?"),  # the same id, but another text
        ("5", "", "", ""),
    ]
    ids, titles, texts, queries = zip(*rows)
    count = len(ids)
    passages = {"passage_id": [*ids[:4], "6"], "title": titles, "text": [*texts[:4], "nobody asks"]}
    passages |= {"article_id": ids, "section": [""] * count, "position": [0] * count}
    asked = {"query_id": ids, "text": [*queries[:4], "nobody asks"], "split": ["test"] * count}
    write_tables(tmp_path, {"passages": passages, "queries": asked})
    corpus = Corpus.open(tmp_path)
    assert same_as(corpus, corpus.queries_of("test")).to_numpy().tolist() == [["1", "1"], ["2", "2"], ["3", "3"]]
    assert same_as(corpus, corpus.queries_of("dev")).empty
