"""The recipe `micro` on a corpus of a few short articles, as people try a cluster with it."""

from __future__ import annotations

from pathlib import Path

import pytest

import stillhouse
from stillhouse.corpus.sources.options import sample_folder
from stillhouse.pipeline.recipes import find_recipe, load_recipe


@pytest.mark.parametrize("paragraphs", [1, 3])
def test_micro_trains_a_head_on_eleven_short_articles(paragraphs: int, tmp_path: Path) -> None:
    recipe = load_recipe(find_recipe("micro"))
    for path in sorted((sample_folder() / "articles").glob("*.md"))[:11]:
        parts = path.read_text(encoding="utf-8").split("\n\n")
        article = tmp_path / "articles" / path.name
        article.parent.mkdir(exist_ok=True)
        article.write_text("\n\n".join(parts[: 1 + paragraphs]), encoding="utf-8")
    stillhouse.fetch_model(output=tmp_path / "model", **recipe["fetch_model"])
    stillhouse.ingest(tmp_path / "articles", tmp_path / "read")
    stillhouse.tokenize(tmp_path / "read" / "corpus", tmp_path / "model" / "encoder", tmp_path / "tokenized")
    tokens, model = tmp_path / "tokenized" / "tokens", tmp_path / "model" / "encoder"
    made = stillhouse.pretrain(tokens, model, tmp_path / "head", **recipe["lm_head"])
    assert made.facts["lm_head"] == "trained" and made.facts["steps"] == 20
