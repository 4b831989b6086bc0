"""How many tokens a Transformer can read, from its table of positions."""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stillhouse.errors import InputError
from stillhouse.retrieval.models.encoder_settings import EncoderSettings

TABLE = "position_embeddings"
"""The Hugging Face name of the table in BERT, RoBERTa, MPNet, DistilBERT, ELECTRA and similar models."""


def longest_text(model: PreTrainedModel) -> int | None:
    """The most tokens of a text, including special tokens, or None if there is no limit.

    Models like RoBERTa count from the position after the padding token's, so 514 rows give 512 positions. A model
    without a table, for example with rotary positions, reads as many as its configuration says.
    """
    for name, module in model.named_modules():
        if name.rsplit(".", 1)[-1] == TABLE and isinstance(module, nn.Embedding):
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    longest = getattr(model.config, "max_position_embeddings", None)
    return longest if isinstance(longest, int) and longest > 0 else None


def refuse_longer(model: PreTrainedModel, what: str, **lengths: int) -> None:
    """Raises `InputError` for a length, given by its setting's name, that exceeds what the model reads."""
    longest = longest_text(model)
    for name, length in lengths.items():
        if longest is not None and length > longest:
            raise InputError(f"{what} reads at most {longest} tokens; lower {name} from {length}")


def refuse_long_prompts(tokenizer: PreTrainedTokenizerBase, settings: EncoderSettings) -> None:
    """Raises `InputError` for a prompt that leaves no room for a text."""
    for role in ("query", "passage"):
        prompt, length = getattr(settings, f"{role}_prompt"), getattr(settings, f"{role}_length")
        # Calling the tokenizer itself would change its truncation and padding, which are saved with it.
        tokens = sum(tokenizer.backend_tokenizer.encode(prompt).attention_mask)
        if tokens >= length:
            raise InputError(
                f"{role}_prompt takes {tokens} tokens, including special tokens, but {role}_length is {length}; raise "
                "the length or shorten the prompt"
            )
