"""The longest text of a model is its real limit: with one token more, the model itself fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers as hf

from stillhouse.core.errors import InputError
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.models.source import fetch
from stillhouse.models.transformer import longest_text

ROWS = 20
SIZES = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
OF_DISTILBERT = {"vocab_size": 40, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16}
MODELS = {
    "BERT": (hf.BertModel, hf.BertConfig(**SIZES, max_position_embeddings=ROWS), 20),
    "ELECTRA": (hf.ElectraModel, hf.ElectraConfig(**SIZES, embedding_size=8, max_position_embeddings=ROWS), 20),
    "DistilBERT": (hf.DistilBertModel, hf.DistilBertConfig(**OF_DISTILBERT, max_position_embeddings=ROWS), 20),
    "RoBERTa": (hf.RobertaModel, hf.RobertaConfig(**SIZES, max_position_embeddings=ROWS, pad_token_id=1), 18),
    "RoBERTa with padding 0": (
        hf.RobertaModel,
        hf.RobertaConfig(**SIZES, max_position_embeddings=ROWS, pad_token_id=0),
        19,
    ),
    "MPNet": (hf.MPNetModel, hf.MPNetConfig(**SIZES, max_position_embeddings=ROWS), 18),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_longest_text_is_read_and_one_token_more_is_not(name: str) -> None:
    kind, config, expected = MODELS[name]
    model: hf.PreTrainedModel = kind(config).eval()
    longest = longest_text(model)
    assert longest == expected
    model(input_ids=torch.full((1, longest), 7), attention_mask=torch.ones(1, longest, dtype=torch.long))
    with pytest.raises((RuntimeError, IndexError)):
        beyond = longest + 1
        model(input_ids=torch.full((1, beyond), 7), attention_mask=torch.ones(1, beyond, dtype=torch.long))


def test_rotary_positions_are_bounded_by_the_configuration() -> None:
    config = hf.ModernBertConfig(**SIZES, max_position_embeddings=ROWS, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    assert longest_text(hf.ModernBertModel(config)) == ROWS


def test_lengths_beyond_the_models_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="reads at most 64 tokens; lower max_length from 65"):
        CrossEncoder.start(tiny_model, 65)
    roberta = tmp_path / "roberta"
    hf.RobertaModel(hf.RobertaConfig(**SIZES, max_position_embeddings=ROWS, pad_token_id=1)).save_pretrained(roberta)
    hf.AutoTokenizer.from_pretrained(tiny_model).save_pretrained(roberta)
    with pytest.raises(InputError, match="reads at most 18 tokens; lower passage_length from 19"):
        fetch(str(roberta), None, "mean", 18, 19, tmp_path)
