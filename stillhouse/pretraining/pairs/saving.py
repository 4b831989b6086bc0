"""Saves trained towers as an encoder folder, which every later step reads."""

from __future__ import annotations

from pathlib import Path

from stillhouse.pretraining.masked_lm import MaskedLanguageModel
from stillhouse.pretraining.pairs.model import PairPretraining
from stillhouse.retrieval.models.encoder_folder import write_towers
from stillhouse.retrieval.models.pooling import EncoderSettings
from stillhouse.retrieval.models.towers import Role, Tower


def save_towers(towers: PairPretraining, encoder: MaskedLanguageModel, folder: Path) -> None:
    """Write the trained towers; `encoder` provides the tokenizer and the language-model head."""
    by_role: dict[Role, Tower] = {"passage": towers.passage_tower}
    if towers.query_tower is not towers.passage_tower:
        by_role["query"] = towers.query_tower
    settings = encoder_settings(towers, encoder.settings)
    write_towers(folder, by_role, encoder.tokenizer, settings, encoder.model)


def encoder_settings(towers: PairPretraining, own: EncoderSettings) -> EncoderSettings:
    """The settings that the trained towers encode texts with; `own` are the settings of the initial encoder.

    Its prompts are kept for fine-tuning and search; pair tasks do not use them.
    """
    config = towers.config
    return EncoderSettings(
        pooling=towers.pooling,
        normalize=config.pair_normalize,
        query_length=config.query_length,
        passage_length=config.passage_length,
        projection=config.projection or 0,
        towers=config.towers,
        query_prompt=own.query_prompt,
        passage_prompt=own.passage_prompt,
    )
