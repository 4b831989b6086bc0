"""How many tokens a Transformer reads at once, as its table of positions says."""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel

from stillhouse.errors import InputError

TABLE = "position_embeddings"
"""What Hugging Face calls the table in BERT, RoBERTa, MPNet, DistilBERT, ELECTRA and their like."""


def longest_text(model: PreTrainedModel) -> int | None:
    """The most tokens of a text, special tokens included; None where nothing bounds them.

    Models like RoBERTa count from the place behind the padding token's, so that 514 rows are 512 positions. A model
    without a table, with rotary positions say, reads as many as its configuration says.
    """
    for name, module in model.named_modules():
        if name.rsplit(".", 1)[-1] == TABLE and isinstance(module, nn.Embedding):
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    longest = getattr(model.config, "max_position_embeddings", None)
    return longest if isinstance(longest, int) and longest > 0 else None


def refuse_longer(model: PreTrainedModel, what: str, **lengths: int) -> None:
    """Raises `InputError` for a length, given by its setting's name, beyond what the model reads."""
    longest = longest_text(model)
    for name, length in lengths.items():
        if longest is not None and length > longest:
            raise InputError(f"{what} reads at most {longest} tokens; lower {name} from {length}")
