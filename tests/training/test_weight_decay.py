"""Weight decay shrinks only weights, and does not change the rest of the optimiser."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers as hf
from families import hugging_face_folder
from torch import nn
from transformers.trainer_pt_utils import get_parameter_names

from stillhouse.pretraining.model import BottleneckPretraining
from stillhouse.pretraining.objectives import find_objective
from stillhouse.training.loop import decay_groups

TRAINER_PATTERNS = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
"""The names that the Trainer of transformers excludes from decay, besides the parameters of `nn.LayerNorm`."""


def tiny(kind: str) -> hf.PreTrainedModel:
    if kind == "distilbert":
        return hf.DistilBertForMaskedLM(hf.DistilBertConfig(vocab_size=20, dim=8, hidden_dim=8, n_layers=2, n_heads=2))
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    return hf.BertForMaskedLM(hf.BertConfig(vocab_size=20, **sizes))


@pytest.mark.parametrize("kind", ["qwen3", "t5"])
def test_norms_of_every_family_are_exempt(kind: str, tmp_path: Path) -> None:
    model = hf.AutoModel.from_pretrained(hugging_face_folder(kind, tmp_path / "model"))
    with_decay = {*get_parameter_names(model, [nn.LayerNorm], TRAINER_PATTERNS)}
    decayed, _ = decay_groups(model, 0.1)
    assert {id(value) for value in decayed["params"]} == {
        id(value) for name, value in model.named_parameters() if name in with_decay
    }


@pytest.mark.parametrize(
    ("model", "objective"), [("bert", "simlm"), ("bert", "enhanced_decoding"), ("distilbert", "simlm")]
)
def test_the_groups_are_those_of_the_trainer_of_transformers(model: str, objective: str) -> None:
    training = BottleneckPretraining(tiny(model), find_objective(objective), "cls")
    with_decay = {*get_parameter_names(training, [nn.LayerNorm], TRAINER_PATTERNS)}
    own = dict(training.named_parameters())  # lists a tied parameter once
    names = {id(parameter): name for name, parameter in own.items()}
    decayed, exempt = ([names[id(value)] for value in group["params"]] for group in decay_groups(training, 0.1))
    assert decayed == [name for name in own if name in with_decay]
    assert exempt == [name for name in own if name not in with_decay]
    assert len(decayed) > 10 and len(exempt) > 5
