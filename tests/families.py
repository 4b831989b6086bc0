"""Models with random weights of every family that sentence-transformers opens, and a tokenizer for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    LayerNorm,
    Normalize,
    Pooling,
    Router,
    StaticEmbedding,
    Transformer,
)
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    T5EncoderModel,
)
from word_pieces import WORDS as OF_CORPORA

WORDS = [*OF_CORPORA, "why", "do", "mice", "ships", "carry", "accurate", "clocks", "at", "sea"]
WORDS += ["who", "hears", "how", "far", "it", "?", "long"]
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SMALL |= {"max_position_embeddings": 96, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
ENCODERS: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 16},
    "bert": {},
    "camembert": {},
    "deberta-v2": {},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "electra": {"embedding_size": 16},
    "ernie": {},
    "megatron-bert": {},
    "modernbert": {"cls_token_id": 2, "sep_token_id": 3},
    "mpnet": {},
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 16},
    "roberta": {},
    "roformer": {"embedding_size": 32},
    "xlm-roberta": {},
    "xmod": {"languages": ("en_XX",), "default_language": "en_XX"},
}
DECODERS: dict[str, dict[str, Any]] = {
    "gemma2": GROUPED,
    "gemma3_text": GROUPED | {"use_bidirectional_attention": True},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96},
    "gpt_neox": {},
    "granite": GROUPED,
    "lfm2": GROUPED | {"layer_types": ["conv", "full_attention"], "block_multiple_of": 8},
    "llama": GROUPED,
    "mistral": GROUPED,
    "olmo2": GROUPED,
    "phi3": GROUPED,
    "qwen2": GROUPED,
    "qwen3": GROUPED,
    "smollm3": GROUPED,
}
T5S: dict[str, dict[str, Any]] = {
    name: {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4} for name in ("t5", "mt5", "umt5")
}
BART = {
    f"{side}_{of}": size
    for side in ("encoder", "decoder")
    for of, size in (("layers", 2), ("ffn_dim", 48), ("attention_heads", 4))
}
SEQ2SEQ = T5S | {"bart": BART | {"d_model": 32, "forced_eos_token_id": None}}
"""Those that write."""
FAMILIES = ENCODERS | DECODERS | T5S


def hugging_face_folder(kind: str, folder: Path) -> Path:
    """A model with random weights and a tokenizer that puts `</s>` after a decoder's text, or a pair around others'."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **(SMALL | FAMILIES[kind]))
    model = T5EncoderModel(config) if kind in T5S else AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # at their usual scale, all texts would have about the same vector
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    tokenizer(after="</s>" if kind not in ENCODERS else "").save_pretrained(folder)
    return folder


CHAT = "{% for m in messages %}<s>{{ m.role }} {{ m.content }}</s>{% endfor %}<s>"
"""A chat template."""


def generator_folder(kind: str, folder: Path, chat: bool = False) -> Path:
    """A model that writes, with random weights."""
    torch.manual_seed(0)
    ends = {"decoder_start_token_id": 0} if kind in SEQ2SEQ else {}
    config = AutoConfig.for_model(kind, **(SMALL | (FAMILIES | SEQ2SEQ)[kind] | ends))
    auto = AutoModelForSeq2SeqLM if kind in SEQ2SEQ else AutoModelForCausalLM
    model: PreTrainedModel = auto.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    words = tokenizer(after="</s>" if kind in SEQ2SEQ else "")
    words.chat_template = CHAT if chat else None
    words.save_pretrained(folder)
    return folder


def opened(kind: str, folder: Path) -> Transformer:
    """The first module of a model of sentence-transformers."""
    return Transformer(str(hugging_face_folder(kind, folder)), model_kwargs={"dtype": "float32"})


def tokenizer(after: str = "") -> PreTrainedTokenizerFast:
    ids = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    inner = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    inner.normalizer, inner.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    ends = [(token, ids[token]) for token in ("<s>", "</s>")]
    single = f"$A {after}" if after else "<s> $A </s>"
    inner.post_processor = processors.TemplateProcessing(single=single, pair=f"{single} $B </s>", special_tokens=ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="</s>",
        bos_token="<s>",
        cls_token="<s>",
        sep_token="</s>",
        mask_token="<mask>",
        model_max_length=96,
    )


def saved(modules: Sequence[nn.Module], folder: Path, **options: Any) -> Path:
    """What sentence-transformers saves, with linear layers of random weights."""
    torch.manual_seed(1)
    own = {"similarity_fn_name": "dot"} | options
    SentenceTransformer(modules=modules, device="cpu", **own).save(str(folder), create_model_card=False)
    return folder


def labse(first: Transformer) -> list[nn.Module]:
    return [first, Pooling(32, "cls"), Dense(32, 32, activation_function=nn.Tanh()), Normalize()]


def embedding_gemma(first: Transformer) -> list[nn.Module]:
    plain = nn.Identity()
    return [first, Pooling(32, "mean"), Dense(32, 80, False, plain), Dense(80, 24, False, plain), Normalize()]


def layer_norm(first: Transformer) -> list[nn.Module]:
    return [first, Pooling(32, "mean"), LayerNorm(32)]


def leaf(first: Transformer) -> list[nn.Module]:
    """A small static query tower, and the Transformer for documents."""
    static = StaticEmbedding(tokenizer().backend_tokenizer, embedding_dim=16)
    document = [first, Pooling(32, "mean"), Dense(32, 12)]
    return [Router.for_query_document([static, Dense(16, 12)], document), Normalize()]


def static(first: Transformer) -> list[nn.Module]:
    return [StaticEmbedding(tokenizer().backend_tokenizer, embedding_dim=24), Normalize()]


CHAINS: tuple[Callable[[Transformer], list[nn.Module]], ...] = (labse, embedding_gemma, layer_norm, leaf, static)
