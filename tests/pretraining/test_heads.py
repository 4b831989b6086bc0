"""The parts of every model family, combined again, give the model's own hidden states and logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf
from torch.nn import functional

from stillhouse.pretraining.heads import family_of, head_parameters, output_matrix

SIZES: dict[str, Any] = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 24, "max_position_embeddings": 20, "pad_token_id": 1, "initializer_range": 0.3}
CONFIGS = {
    "bert": hf.BertConfig(**SIZES),
    "roberta": hf.RobertaConfig(**SIZES),
    "electra": hf.ElectraConfig(**SIZES, embedding_size=16),
    "electra, narrow embeddings": hf.ElectraConfig(**SIZES, embedding_size=8),
    "distilbert": hf.DistilBertConfig(
        vocab_size=40, dim=16, n_layers=3, n_heads=2, hidden_dim=24, max_position_embeddings=20, pad_token_id=1
    ),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_parts_give_the_models_own_logits(config: hf.PretrainedConfig) -> None:
    torch.manual_seed(0)
    model = hf.AutoModelForMaskedLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    ids = torch.tensor([[2, 7, 8, 9, 3], [2, 7, 3, 1, 1]])
    attention = ids != 1
    additive = torch.zeros(ids.shape).masked_fill(~attention, torch.finfo(torch.float32).min)[:, None, None]
    family = family_of(model)
    with torch.no_grad():
        whole = model(input_ids=ids, attention_mask=attention.long(), output_hidden_states=True)
        states = family.embed(model)(ids)
        for layer in family.layers(model):
            states = layer(states, additive)
        logits = functional.linear(family.transform(model)(states[attention]), *output_matrix(model))
    torch.testing.assert_close(states[attention], whole.hidden_states[-1][attention], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits, whole.logits[attention], rtol=1e-4, atol=1e-5)
    inside = {id(parameter) for parameter in model.base_model.parameters()}
    assert head_parameters(model)
    assert not inside & {id(parameter) for parameter in head_parameters(model).values()}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_positions_are_what_the_embeddings_add(config: hf.PretrainedConfig) -> None:
    """A hook records what a passage without padding takes from the position table, in the width of the layers."""
    torch.manual_seed(0)
    model = hf.AutoModelForMaskedLM.from_config(config).eval()
    taken: list[torch.Tensor] = []
    table = model.base_model.embeddings.position_embeddings
    hook = table.register_forward_hook(lambda module, inputs, output: taken.append(output))
    with torch.no_grad():
        family_of(model).embed(model)(torch.tensor([[2, 7, 8, 9, 3]]))
        hook.remove()
        expected = taken[0].reshape(5, -1)
        if expected.shape[1] != model.config.hidden_size:
            expected = expected @ model.electra.embeddings_project.weight.T
        torch.testing.assert_close(family_of(model).positions(model)(5), expected)
