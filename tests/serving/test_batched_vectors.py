"""A text's vector is the same to the last bit, whoever else asks at the time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertModel
from word_pieces import SPECIAL, save_tokenizer

from stillhouse.retrieval.pooling import EncoderSettings
from stillhouse.retrieval.query_encoder import PlainBert
from stillhouse.serving.batch_encoder import PackedBert


def test_a_text_alone_and_among_others_has_one_vector(tmp_path: Path) -> None:
    """Of a width at which products of one row are rounded otherwise than those of eight: rows are filled up."""
    save_tokenizer(tmp_path, [*SPECIAL, *(f"w{n}" for n in range(90))])
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(SPECIAL) + 90,
        hidden_size=384,
        num_hidden_layers=2,
        num_attention_heads=6,
        intermediate_size=1536,
    )
    model = BertModel(config)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data.mul_(3)
    model.save_pretrained(tmp_path)
    encoder = PackedBert(PlainBert(tmp_path, EncoderSettings(), torch.device("cpu")))
    random = np.random.default_rng(0)
    lengths = (1, 2, 3, 5, 7, 9, 11, 13, 20, 3, 4)
    ids = [random.integers(len(SPECIAL), config.vocab_size, length).tolist() for length in lengths]
    alone_QD = np.concatenate([encoder.vectors([each]) for each in ids])
    assert np.array_equal(encoder.vectors(ids), alone_QD)
