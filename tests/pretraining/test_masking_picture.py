"""The picture of masked tokens: its numbers on passages with a known result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from stillhouse.pretraining import masking_picture
from stillhouse.pretraining.masking_picture import by_importance, draw_masks, extremes, render, terms
from stillhouse.pretraining.tokens import SpecialTokens, TokenCache


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model, local_files_only=True)


def cache(tokenizer: PreTrainedTokenizerBase, texts: list[str], ami: list[float]) -> TokenCache:
    rows = [tokenizer.convert_tokens_to_ids(text.split()) for text in texts]
    ids = np.array([token for row in rows for token in row], dtype=np.int32)
    offsets = np.cumsum([0] + [len(row) for row in rows]).astype(np.int64)
    starts = np.array([not word.startswith("##") for text in texts for word in text.split()])
    return TokenCache(ids, offsets, starts, SpecialTokens.of(tokenizer), np.array(ami, dtype=np.float32))


def test_without_noise_the_most_important_half_is_masked(tokenizer: PreTrainedTokenizerBase) -> None:
    masked = draw_masks(cache(tokenizer, ["the red bird the", "the fish"], [1, 3, 4, 2, 0, 9]), 0.5, 0.0)
    np.testing.assert_array_equal(masked.share[:, :6], [[0, 0, 1, 1, 0, 0], [0, 0, 1, 0, 0, 0]])
    np.testing.assert_allclose(masked.uniform, [0.5, 0.5])
    found = {term.text: term for term in terms(masked, tokenizer)}
    # "the" is half of the six tokens, so half of uniform masks, and none of these.
    assert (found["the"].occurrences, found["the"].uniform, found["the"].importance) == (3, 0.5, 0)
    np.testing.assert_allclose(found["fish"].importance, 1 / 3)
    most, least = extremes(list(found.values()))
    assert (most[-1].masked, least[0].text) == (1, "the")
    assert [share for _, share in by_importance(masked)] == [0, 0, 0, 1, 1, 1]


def test_noise_without_importance_is_uniform(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masking_picture, "DRAWS", 4000)
    masked = draw_masks(cache(tokenizer, ["the red bird sings"], [5, 5, 5, 5]), 0.5, 1.0)
    # Four standard deviations of a share of 4000 draws: 4 * sqrt(1/4 / 4000) = 0.032.
    np.testing.assert_allclose(masked.share[0, 1:5], 0.5, atol=0.032)


def test_text_is_escaped(tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking_picture, "_plain", lambda tokenizer, number: "<b>")
    page = render(cache(tokenizer, ["the red bird sings"], [1, 2, 3, 4]), tokenizer, 0.5, 1.0)
    assert page is not None
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
