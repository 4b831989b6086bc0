"""Trained towers become an encoder folder, which every later step reads."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stillhouse.pretraining.pairs.model import PairPretraining
from stillhouse.retrieval.encoder_folder import write_towers
from stillhouse.retrieval.pooling import EncoderSettings
from stillhouse.retrieval.towers import Role, Tower


def save_towers(
    towers: PairPretraining, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> None:
    """Writes the towers that were trained on `model`, Transformers with its language-model head."""
    by_role: dict[Role, Tower] = {"passage": towers.passage_tower}
    if towers.query_tower is not towers.passage_tower:
        by_role["query"] = towers.query_tower
    write_towers(folder, by_role, tokenizer, encoder_settings(towers), model)


def encoder_settings(towers: PairPretraining) -> EncoderSettings:
    """How the trained towers make a text a vector."""
    config = towers.config
    return EncoderSettings(
        pooling=towers.pooling,
        normalize=config.pair_normalize,
        query_length=config.query_length,
        passage_length=config.passage_length,
        projection=config.projection,
        towers=config.towers,
    )
