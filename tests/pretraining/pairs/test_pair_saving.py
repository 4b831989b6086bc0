"""Saved towers: sentence-transformers, AutoModel and the bi-encoder give the trained vectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from stillhouse.core.context import Context
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.encoder_settings import EncoderSettings, read_settings
from stillhouse.models.settings import InferenceConfig
from stillhouse.pretraining.masked_lm import MaskedLanguageModel
from stillhouse.pretraining.pairs.model import PairPretraining, save_towers
from stillhouse.pretraining.pairs.settings import PairConfig
from stillhouse.pretraining.tokens import SpecialTokens

TEXTS = ["the red bird sings", "a fish", "which tree grows in the blue one and the green two", "three birds"]
CONFIG = PairConfig(query_length=16, passage_length=32, projection=6)


def saved(
    tiny_model: Path, folder: Path, config: PairConfig, own: EncoderSettings | None = None
) -> dict[str, np.ndarray]:
    """Save towers that differ without training them, and return the vectors of `TEXTS` by side.

    `own` are the settings of the model that the towers start from.
    """
    torch.manual_seed(1)
    model = AutoModelForMaskedLM.from_pretrained(tiny_model)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model, local_files_only=True)
    towers = PairPretraining(model, "mean", config, SpecialTokens.of(tokenizer)).eval()
    if config.towers == "separate":
        with torch.no_grad():
            for parameter in towers.query_tower.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
    folder.mkdir()
    save_towers(towers, MaskedLanguageModel(model, tokenizer, own or EncoderSettings(), True), folder)
    encoded = tokenizer(TEXTS, padding=True, return_tensors="pt")
    arguments = encoded["input_ids"], encoded["attention_mask"].bool()
    with torch.no_grad():
        return {"query": towers.queries(*arguments).numpy(), "document": towers.passages(*arguments).numpy()}


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("towers", ["shared", "separate"])
@pytest.mark.parametrize(("encoder", "projection"), [("transformer", 6), ("transformer", 0), ("bow_mlp", 6)])
def test_sentence_transformers_and_the_bi_encoder_give_the_trained_vectors(
    tiny_model: Path, tmp_path: Path, encoder: str, towers: str, projection: int, normalize: bool
) -> None:
    config = replace(CONFIG, towers=towers, projection=projection, pair_normalize=normalize, pair_encoder=encoder)
    expected = saved(tiny_model, tmp_path / "one", config)
    assert np.allclose(expected["query"], expected["document"], atol=1e-4) == (towers == "shared")
    model = SentenceTransformer(str(tmp_path / "one"), device="cpu")
    np.testing.assert_allclose(model.encode_query(TEXTS), expected["query"], atol=1e-5)
    np.testing.assert_allclose(model.encode_document(TEXTS), expected["document"], atol=1e-5)
    BiEncoder.load(tmp_path / "one").save(tmp_path / "two")
    context, exact = Context(tmp_path, "cpu", quiet=True), InferenceConfig(precision="fp32")
    for folder in ("one", "two"):
        bi_encoder = BiEncoder.load(tmp_path / folder)
        assert (bi_encoder.settings.query_length, bi_encoder.settings.passage_length) == (16, 32)
        assert bi_encoder.width == (projection or 32)
        queries = encode(bi_encoder, bi_encoder.queries(TEXTS), context, "test", exact)
        passages = encode(bi_encoder, bi_encoder.passages(TEXTS), context, "test", exact)
        np.testing.assert_allclose(queries, expected["query"], atol=1e-5)
        np.testing.assert_allclose(passages, expected["document"], atol=1e-5)


@pytest.mark.parametrize("towers", ["shared", "separate"])
def test_automodel_and_the_head_can_be_loaded(tiny_model: Path, tmp_path: Path, towers: str) -> None:
    saved(tiny_model, tmp_path / "encoder", replace(CONFIG, towers=towers))
    _, info = AutoModelForMaskedLM.from_pretrained(tmp_path / "encoder", output_loading_info=True)
    assert not info["missing_keys"]
    original = AutoModel.from_pretrained(tiny_model, add_pooling_layer=False).state_dict()
    for name, value in AutoModel.from_pretrained(tmp_path / "encoder", add_pooling_layer=False).state_dict().items():
        assert torch.equal(value, original[name]), name


def test_the_prompts_of_the_model_are_kept(tiny_model: Path, tmp_path: Path) -> None:
    own = EncoderSettings(pooling="cls", query_length=5, query_prompt="query: ", passage_prompt="passage: ")
    saved(tiny_model, tmp_path / "encoder", CONFIG, own)
    assert read_settings(tmp_path / "encoder") == EncoderSettings(
        "mean", CONFIG.pair_normalize, 16, 32, 6, "shared", "query: ", "passage: "
    )
