"""The two-tower model of Chang et al. (2020) §2 with its loss, and the encoder folder that it is saved in.

Shape suffixes: B pairs, L tokens, D width of the vectors.
"""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from stillhouse.core.errors import InputError
from stillhouse.models.encoder_folder import write_towers
from stillhouse.models.encoder_settings import EncoderSettings
from stillhouse.models.pooling import normalized
from stillhouse.models.towers import BagOfWordsTower, Role, Tower, TransformerTower
from stillhouse.models.transformer import refuse_longer
from stillhouse.pretraining.masked_lm import MaskedLanguageModel
from stillhouse.pretraining.pairs.batch import PairBatch
from stillhouse.pretraining.pairs.sampled_softmax import sampled_softmax_loss
from stillhouse.pretraining.pairs.settings import PairConfig
from stillhouse.pretraining.tokens import SpecialTokens


class PairPretraining(nn.Module):
    """The towers of queries and passages, and the loss of their vectors.

    With shared towers `query_tower` is `passage_tower`; separate ones start from the same parameters. The module shares
    the Transformer's parameters with `model`, so training it trains `model`, except for the language-model head, which
    is not part of this module. Raises `InputError` for texts longer than `model` can read.
    """

    def __init__(self, model: PreTrainedModel, pooling: str, config: PairConfig, specials: SpecialTokens) -> None:
        super().__init__()
        self.config = config
        self.pooling = pooling
        bag = config.pair_encoder == "bow_mlp"
        if not bag:
            lengths = {"query_length": config.pair_query_tokens, "passage_length": config.pair_passage_tokens}
            refuse_longer(model, "the model", **lengths)
        base = model.base_model
        assert isinstance(base, PreTrainedModel)
        if bag:
            if not config.projection:
                raise InputError(
                    "the bow_mlp encoder needs the width of its last layer; set projection (Chang et al.: 512)"
                )
            added = (specials.cls, specials.sep, specials.pad)
            self.passage_tower: Tower = BagOfWordsTower(int(model.config.vocab_size), added, config.projection)
        else:
            layer = nn.Linear(int(base.config.hidden_size), config.projection) if config.projection else None
            self.passage_tower = TransformerTower(base, pooling, layer)
        shared = config.towers == "shared"
        self.query_tower: Tower = self.passage_tower if shared else copy.deepcopy(self.passage_tower)

    def forward(self, batch: PairBatch) -> Tensor:
        """The sampled softmax of a batch of pairs."""
        query_BD = self.queries(batch.query_ids_BL, batch.query_attention_BL)
        passage_BD = self.passages(batch.passage_ids_BL, batch.passage_attention_BL)
        return self.loss(query_BD, passage_BD, batch)

    def loss(self, query_BD: Tensor, passage_BD: Tensor, batch: PairBatch) -> Tensor:
        """The sampled softmax of a batch, given its vectors."""
        log_q_B = batch.log_q_B if self.config.correction else torch.zeros_like(batch.log_q_B)
        return sampled_softmax_loss(query_BD, passage_BD, log_q_B, batch.same_target(), self.config.temperature)

    def queries(self, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        """The vectors of queries, float32 [B, D], of length 1 with `pair_normalize`."""
        return self._vectors(self.query_tower, ids_BL, attention_BL)

    def passages(self, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        """The vectors of passages, float32 [B, D], of length 1 with `pair_normalize`."""
        return self._vectors(self.passage_tower, ids_BL, attention_BL)

    def _vectors(self, tower: Tower, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        vectors_BD: Tensor = tower(ids_BL, attention_BL).float()  # under autocast a projection returns bf16
        return normalized(vectors_BD) if self.config.pair_normalize else vectors_BD


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
        query_length=config.pair_query_tokens,
        passage_length=config.pair_passage_tokens,
        projection=config.projection or 0,
        towers=config.towers,
        truncate_dim=own.truncate_dim,
        query_prompt=own.query_prompt,
        passage_prompt=own.passage_prompt,
    )
