"""The tokenizer of the tests' own models: word pieces of a given vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
"""The first pieces of every vocabulary."""
WORDS = ["red", "green", "blue", "bird", "fish", "tree", "sings", "swims", "grows", "the", "a", "in", "of", "and"]
WORDS += ["what", "which", "where", "does", "is", "one", "two", "three"]
"""The words of the tests' own corpora."""
TINY = {"hidden_size": 32, "num_attention_heads": 2, "max_position_embeddings": 64}
"""The sizes of the tests' own models."""


def save_tokenizer(folder: Path, vocabulary: Sequence[str]) -> None:
    """Writes a BERT tokenizer with these distinct pieces. The id of a piece is its position."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = {piece: number for number, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]", model_max_length=64, **names)
    fast.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    fast.save_pretrained(folder)
