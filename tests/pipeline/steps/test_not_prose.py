"""Tables and code in Markdown from `ingest` to pair tasks: they can be found, but make no queries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from stillhouse.models.tokenizer_files import load_tokenizer
from stillhouse.pretraining.pairs.articles import ordinary_sentences
from stillhouse.pretraining.pairs.settings import PairConfig
from stillhouse.pretraining.pairs.task import open_pairs
from stillhouse.pretraining.tokens import SpecialTokens, TokenCache

PROSE = (1, 5, 9, 13)
"""The rows of passages in first sections that are neither a table nor code."""


def test_code_and_tables_become_no_pair_queries(
    run_step: Callable[..., dict[str, Path]], tiny_model: Path, tmp_path: Path
) -> None:
    """Their sentences are never queries of ict, bfs or wlp, but they can be found as passages."""
    source = tmp_path / "articles"
    source.mkdir()
    for name, other in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")):
        table, code = "| One is. Two is. |\n|---|\n| Three is. |", "```\nOne is. Two is.\n```"
        prose = f"One was. Two was, by [it]({other}.md)."
        (source / f"{name}.md").write_text(f"{table}\n\n{prose}\n\n{code}\n\n## S\n\nIt is.")
    corpus = run_step("ingest", {}, source=str(source), queries="source")["corpus"]
    tokens = run_step("tokenize", {"corpus": corpus, "tokenizer": tiny_model})["tokens"]
    cache = TokenCache.open(tokens, SpecialTokens.of(load_tokenizer(tiny_model)))
    assert ordinary_sentences(cache).counts().tolist() == [1, 2, 1, 1] * 4
    maker = open_pairs(
        cache,
        ("ict", "bfs", "wlp"),
        PairConfig(query_length=64, passage_length=64),
        heldout_fraction=0.3,
        max_eval_samples=100,
        seed=0,
        device=torch.device("cpu"),
    )
    asking = {int(row) for side in maker.sides for pairs in side.values() for row in pairs.sources}
    assert asking == set(PROSE)
    found = {row for side in maker.sides for row in side["bfs"].probability.nonzero()[0].tolist()}
    assert found == set(range(16)) - set(PROSE)
