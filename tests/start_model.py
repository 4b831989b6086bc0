"""A base model for the micro recipe, a hundred times smaller than its own: little to hash, copy and write."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from word_pieces import SPECIAL, TINY, save_tokenizer

ARTICLES = Path(__file__).resolve().parents[1] / "stillhouse" / "sample" / "articles"


def make_start_model(folder: Path) -> None:
    """Writes a BERT of 3 layers and width 32 with random weights, its head, and a vocabulary of the sample."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    text = " ".join(path.read_text(encoding="utf-8") for path in sorted(ARTICLES.glob("*.md"))).lower()
    words = Counter(re.findall("[a-z]+", text))
    letters = sorted(set("".join(text.split())))
    pieces = [*SPECIAL, *letters, *("##" + letter for letter in letters)]
    pieces += sorted(words, key=lambda word: (-words[word], word))[:1500]
    vocabulary = list(dict.fromkeys(pieces))
    save_tokenizer(folder, vocabulary)
    config = BertConfig(vocab_size=len(vocabulary), num_hidden_layers=3, intermediate_size=64, **TINY)
    torch.manual_seed(0)
    BertForMaskedLM(config).save_pretrained(folder)
