"""Small complete model folders, written by hand: the fuzzer of model folders starts from them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from safetensors.numpy import save

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "fish", "swims", "a"]
WIDTH, INNER, POSITIONS = 8, 12, 24
BERT: dict[str, Any] = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": POSITIONS,
    "vocab_size": len(WORDS),
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "dtype": "float32",
}


def weights(shapes: dict[str, tuple[int, ...]]) -> bytes:
    rng = np.random.default_rng(0)
    drawn = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    return save(drawn, {"format": "pt"})


def linear(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (WIDTH,), f"{name}.bias": (WIDTH,)}


def bert() -> dict[str, tuple[int, ...]]:
    tables = {"word": len(WORDS), "position": POSITIONS, "token_type": 2}
    shapes = {f"bert.embeddings.{name}_embeddings.weight": (rows, WIDTH) for name, rows in tables.items()}
    shapes |= norm("bert.embeddings.LayerNorm")
    layer = "bert.encoder.layer.0"
    for name in ("query", "key", "value"):
        shapes |= linear(f"{layer}.attention.self.{name}", WIDTH, WIDTH)
    shapes |= linear(f"{layer}.attention.output.dense", WIDTH, WIDTH) | norm(f"{layer}.attention.output.LayerNorm")
    shapes |= linear(f"{layer}.intermediate.dense", WIDTH, INNER)
    return shapes | linear(f"{layer}.output.dense", INNER, WIDTH) | norm(f"{layer}.output.LayerNorm")


def packed(content: Any) -> bytes:
    return json.dumps(content).encode()


def tokenizer() -> dict[str, bytes]:
    added = [{"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, word in enumerate(WORDS[:5])]  # fmt: skip
    around: dict[str, Any] = {"sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing"} | around,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {word: i for i, word in enumerate(WORDS)}},
    }  # fmt: skip
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": POSITIONS} | names
    return {"tokenizer.json": packed(content), "tokenizer_config.json": packed(about)}


def dense(folder: str, inputs: int, outputs: int) -> dict[str, bytes]:
    return {f"{folder}/model.safetensors": weights(linear("linear", inputs, outputs))}


OWN = {"pooling": "mean", "normalize": True, "query_length": 8, "passage_length": 12, "projection": 4}
MODULES = [{"type": f"sentence_transformers.models.{kind}", "path": path}
           for kind, path in (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))]  # fmt: skip
HEAD = linear("cls.predictions.transform.dense", WIDTH, WIDTH) | norm("cls.predictions.transform.LayerNorm")
HEAD |= {"cls.predictions.bias": (len(WORDS),)}
CLASSIFIER = linear("bert.pooler.dense", WIDTH, WIDTH) | linear("classifier", WIDTH, 1)
SCORES = BERT | {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "it"}, "label2id": {"it": 0}}
FOLDERS: dict[str, dict[str, bytes]] = {
    "hub": {
        "config.json": packed(BERT),
        "model.safetensors": weights(bert() | HEAD),
        "modules.json": packed(MODULES),
        "1_Pooling/config.json": packed({"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True}),
        **tokenizer(),
    },
    "own": {
        "config.json": packed(BERT | {"architectures": ["BertModel"]}),
        "model.safetensors": weights({name.removeprefix("bert."): shape for name, shape in bert().items()}),
        "stillhouse.json": packed(OWN | {"towers": "shared"}),
        **dense("2_Dense", WIDTH, 4),
        **tokenizer(),
    },
    "reranker": {
        "config.json": packed(SCORES | {"stillhouse_max_length": 16}),
        "model.safetensors": weights(bert() | CLASSIFIER),
        **tokenizer(),
    },
    "cosine": {
        "config.json": packed(BERT | {"stillhouse_max_length": 16, "stillhouse_pooling": "cosine"}),
        "model.safetensors": weights({name.removeprefix("bert."): shape for name, shape in bert().items()}),
        **tokenizer(),
    },
    "bag": {
        "stillhouse.json": packed(OWN | {"towers": "shared"}),
        "document/0_StaticEmbedding/model.safetensors": weights({"embedding.weight": (len(WORDS), 6)}),
        **dense("document/1_Dense", 6, 5),
        **dense("document/2_Dense", 5, 4),
        **tokenizer(),
    },
}
"""The files of each kind of model folder: sentence-transformers with a language-model head, Stillhouse with a
projection, both kinds of cross-encoder, and a bag of words."""
PLACES = [(kind, file) for kind, files in FOLDERS.items() for file in sorted(files)]
SEEDS = [bytes([number]) + FOLDERS[kind][file] for number, (kind, file) in enumerate(PLACES)]
"""A byte that picks the file to replace, then the whole content of that file."""
