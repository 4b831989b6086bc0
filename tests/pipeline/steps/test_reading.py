"""A model that does not read the language of a corpus is found by the train queries, made ones too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from indexed_corpora import write_corpus

from stillhouse.core.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.settings import InferenceConfig
from stillhouse.search.bm25 import BM25
from stillhouse.search.reading import HALF_READ, UNREAD, lexical_factor
from stillhouse.search.searcher import open_index

PASSAGES = 200


@pytest.mark.parametrize(("labelled", "made", "read"), [(3, 40, False), (0, 40, False), (40, 0, False), (20, 9, True)])
def test_a_few_labelled_queries_do_not_hide_that_a_model_reads_nothing(
    labelled: int, made: int, read: bool, tiny_model: Path, tmp_path: Path, run_step: Callable[..., dict[str, Path]]
) -> None:
    """An untrained model finds nothing that BM25 finds. With fewer than 30 queries, nobody can tell."""
    rng, count = np.random.default_rng(3), labelled + made
    words = ["".join(rng.choice(list("abcdefghijkl"), 6)) for _ in range(PASSAGES)]
    texts = [f"the {words[n]} {words[n - 1]} sings in the tree" for n in range(PASSAGES)]
    ids = [f"p{n}" for n in range(PASSAGES)]
    passages = pd.DataFrame({"passage_id": ids, "article_id": ids, "text": texts})
    passages = passages.assign(title="", section="", position=0)
    queries = pd.DataFrame({"query_id": ids[:count], "text": [f"{words[n]} {words[n - 1]}" for n in range(count)]})
    queries = queries.assign(split="train", origin=["source"] * labelled + ["ict"] * made, taken_from="")
    qrels = pd.DataFrame({"query_id": ids[:count], "passage_id": ids[:count]}).assign(relevance=1, split="train")
    tables = {"passages": passages, "queries": queries, "qrels": qrels}
    folders = {"corpus": write_corpus(tmp_path / "corpus", tables), "retriever": tiny_model}
    corpus = Corpus.open(folders["corpus"])
    index = open_index(run_step("index", folders)["index"], corpus)
    encoder, context = BiEncoder.load(tiny_model), Context(tmp_path, "cpu", quiet=True)
    found = lexical_factor(encoder, tiny_model, index, BM25.of(texts, 1.5, 0.75), corpus, context, InferenceConfig())
    assert found in ((1.0, HALF_READ) if read else (UNREAD,))
