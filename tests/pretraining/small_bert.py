"""A BERT for masked language modelling, small and with weights so large that its outputs differ."""

from __future__ import annotations

import torch
from transformers import BertConfig, BertForMaskedLM


def small_bert(vocabulary: int, width: int, layers: int = 1, **more: float) -> BertForMaskedLM:
    torch.manual_seed(0)
    sizes = {"intermediate_size": width, "max_position_embeddings": 16, "initializer_range": 0.4} | more
    sizes |= {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 2}
    return BertForMaskedLM(BertConfig(vocab_size=vocabulary, **sizes))
