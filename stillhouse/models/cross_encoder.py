"""The cross-encoder: reads query and passage together and gives one score (SimLM §3.2, the re-ranker).

With `cls`, the papers' form, a scoring layer on [CLS] gives the score: the model of
`AutoModelForSequenceClassification`. With `cosine` there is no new layer. Query and passage are read together, in one
sequence without token types, as retrievers read their texts. The score is `SCALE` times the cosine of the mean state of
the query's half and that of the passage's half. So it begins with what a retriever knows.

Shape suffixes: P pairs, L tokens, D hidden width.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    BatchEncoding,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.titles import joined_by_colon
from stillhouse.models.acceleration.unpadded import can_end_in_first_token
from stillhouse.models.encoder import TOKENIZING, TokenizedTexts
from stillhouse.models.encoder_folder import refuse_bag_of_words
from stillhouse.models.encoder_settings import (
    CONFIG,
    MODEL,
    OWN_POOLING,
    REMEDY,
    is_saved_cross_encoder,
    saved_model,
    scores_by_modules,
    transformer_in,
)
from stillhouse.models.model_place import refuse_adapter, refuse_unsupported
from stillhouse.models.module_cross_encoder import ModuleCrossEncoder
from stillhouse.models.pair_scores import PairScorer, PairTexts
from stillhouse.models.pooling import pool
from stillhouse.models.tokenizer_files import load_tokenizer, save_tokenizer
from stillhouse.models.transformer import (
    keep_layers,
    load_model,
    longest_text,
    read_config,
    reading,
    reads_types,
    refuse_larger_vocabulary,
    refuse_longer,
)

CLS, COSINE = "cls", "cosine"
PAIR_POOLINGS = (CLS, COSINE)
OF_SENTENCE_TRANSFORMERS = "sentence_transformers"
"""The configuration entry for the `CrossEncoder` of sentence-transformers."""
ACTIVATION, OLD_ACTIVATION = "activation_fn", "sbert_ce_default_activation_function"
"""The entries for its activation function: within the entry above, and of versions before 4."""
SCALE = 20.0
"""One divided by a temperature of 0.05, at which recipes train retrievers."""


def auto_class(pooling: str) -> Any:
    """The class that loads the model."""
    assert pooling in PAIR_POOLINGS, pooling
    return AutoModel if pooling == COSINE else AutoModelForSequenceClassification


def write_pooling_entry(config: PreTrainedConfig, pooling: str) -> None:
    """Set the entries of a model's configuration for a pooling, in place of those of the model that it began from."""
    for name in (OWN_POOLING, OF_SENTENCE_TRANSFORMERS):
        vars(config).pop(name, None)
    if pooling == COSINE:
        setattr(config, OWN_POOLING, COSINE)
    else:
        setattr(config, OF_SENTENCE_TRANSFORMERS, {ACTIVATION: "torch.nn.modules.linear.Identity"})


def read_pooling_entry(folder: Path, config: PreTrainedConfig) -> str:
    """The pooling of a cross-encoder's folder. Raises `InputError` for one that this version does not have."""
    named = getattr(config, OWN_POOLING, CLS)
    if named not in PAIR_POOLINGS:
        raise InputError(
            f"{folder / CONFIG} names the {OWN_POOLING} {str(named)[:80]!r}, which is none of "
            f"{', '.join(PAIR_POOLINGS)}; use the version of Stillhouse that trained it"
        )
    return str(named)


def read_activation(folder: Path, config: PreTrainedConfig) -> nn.Module:
    """What the `CrossEncoder` of sentence-transformers makes of a raw score: the sigmoid unless the folder says more.

    Raises `InputError` for a function that is not PyTorch's own, because code from a model folder is never run.
    """
    if hasattr(config, OWN_POOLING):
        return nn.Identity()
    said = saved_model(folder) if is_saved_cross_encoder(folder) else {}
    entry = getattr(config, OF_SENTENCE_TRANSFORMERS, None) or {}
    name = said.get(ACTIVATION) or entry.get(ACTIVATION) or getattr(config, OLD_ACTIVATION, None) or "torch.nn.Sigmoid"
    found = getattr(nn, str(name).rsplit(".", 1)[-1], None) if str(name).startswith("torch.nn.") else None
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise InputError(
            f"{folder} names the activation function {str(name)[:80]!r}, which is none of torch.nn; save the "
            "cross-encoder with one of these, such as torch.nn.Sigmoid"
        )
    with reading(folder):
        return found()


def read_prompt(folder: Path) -> str:
    """The text that the `CrossEncoder` of sentence-transformers puts before every query."""
    said = saved_model(folder) if is_saved_cross_encoder(folder) else {}
    prompts, name = said.get("prompts") or {}, said.get("default_prompt_name")
    text = prompts.get(name, "") if isinstance(prompts, dict) else None
    if not isinstance(text, str):
        raise InputError(f"{folder / MODEL}: its prompts are not texts with names; {REMEDY}")
    return text


def passage_halves(encoded: BatchEncoding) -> list[list[int]]:
    """For each pair, 0 at the tokens of the query's half and 1 at those of the passage's, as BERT's token types.

    The passage's half begins with the passage's first token and ends with the pair, so separators between query and
    passage belong to the query. The half of an empty passage is the pair's last token. Works for every fast tokenizer,
    whether or not it gives token types.
    """
    halves = []
    for number, ids in enumerate(encoded["input_ids"]):
        sides = encoded.sequence_ids(number)
        begin = sides.index(1) if 1 in sides else len(ids) - 1
        halves.append([0] * begin + [1] * (len(ids) - begin))
    return halves


def cosine_of_halves(states_PLD: Tensor, mask_PL: Tensor, halves_PL: Tensor) -> Tensor:
    """`SCALE` times the cosine of the mean states of the query's half and of the passage's half: float32 [P].

    `mask_PL` is 1 at tokens and 0 at padding; `halves_PL` comes from `passage_halves`.
    """
    kept_PL, passage_PL = mask_PL.bool(), halves_PL.bool()
    query_PD, passage_PD = (
        pool(states_PLD.float(), part_PL, "mean") for part_PL in (kept_PL & ~passage_PL, kept_PL & passage_PL)
    )
    return SCALE * torch.cosine_similarity(query_PD, passage_PD, dim=1)


OWN_LENGTH = "stillhouse_max_length"
"""The configuration entry for the most tokens of a pair."""
UNSAID_LENGTH = 512
"""The most tokens of a pair if the folder sets none. A ModernBERT reads 8,192, which would need too much memory."""
SHORTEST = 8
"""The smallest length that `train-reranker` accepts."""


class CrossEncoder(PairScorer):
    """A Transformer with one score per pair, from a scoring layer on [CLS] or without one (`pooling`).

    With `pooling` "cls", `AutoModelForSequenceClassification` loads its folder, and the `CrossEncoder` of
    sentence-transformers gives the same scores, because the folder sets the identity as activation. With "cosine",
    `AutoModel` loads it, and only Stillhouse scores pairs with it. `activation` makes a score of a raw score, and
    `prompt` is put before every query, as in a folder of sentence-transformers.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        pooling: str = CLS,
        activation: nn.Module | None = None,
        prompt: str = "",
    ) -> None:
        super().__init__()
        self.activation = activation or nn.Identity()
        self.prompt = prompt
        self.model = model
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.pooling = pooling
        alone = pooling == CLS and can_end_in_first_token(model)
        self._options = {"first_token_alone": True} if alone else {}

    @classmethod
    @doing("loading the model")
    def start(
        cls, folder: Path, max_length: int, layers: int | None = None, *, shorten: bool = False, pooling: str = CLS
    ) -> Self:
        """A new cross-encoder on a pre-trained encoder or a retriever.

        With `pooling` "cls" it has a scoring layer, drawn from torch's random state. `layers` keeps this many of the
        encoder's first layers. With `shorten`, a pair has no more tokens than the encoder reads. Raises `InputError` if
        the encoder has fewer layers, reads fewer tokens than `max_length` otherwise, or is a bag of words.
        """
        refuse_bag_of_words(folder)
        refuse_unsupported(folder)
        if not (transformer_in(folder) / CONFIG).is_file():
            raise InputError(f"{folder / CONFIG} is missing: a re-ranker starts from a Transformer; give another model")
        config = read_config(folder, **({"num_labels": 1} if pooling == CLS else {}))
        if layers and layers > config.num_hidden_layers:
            raise InputError(f"{folder} has {config.num_hidden_layers} layers, but `layers: {layers}` asks for more")
        keep_layers(config, layers or config.num_hidden_layers)
        model = load_model(auto_class(pooling), folder, config).model
        if shorten:
            max_length = min(max_length, longest_text(model) or max_length)
        refuse_longer(model, str(folder), max_length=max_length)
        write_pooling_entry(model.config, pooling)
        setattr(model.config, OWN_LENGTH, max_length)
        tokenizer = load_tokenizer(folder)
        model.config.pad_token_id = tokenizer.pad_token_id  # a decoder scores the last token before the padding
        refuse_larger_vocabulary(folder, tokenizer, model.get_input_embeddings())
        return cls(model, tokenizer, max_length, pooling)

    @classmethod
    @doing("loading the cross-encoder")
    def load(cls, folder: str | PathLike[str], *, raw: bool = False) -> PairScorer:
        """Raises `InputError` for a folder without a model that gives one score per pair, and for a damaged one.

        With `raw`, the scores are those before the folder's activation function, whose sigmoid makes all good pairs
        nearly alike to a student.
        """
        folder = Path(folder)
        remedy = "`stillhouse train-reranker` makes a cross-encoder"
        refuse_adapter(folder)
        if scores_by_modules(folder):
            return ModuleCrossEncoder.open(folder, raw)
        if not (transformer_in(folder) / CONFIG).is_file():
            raise InputError(f"{folder / CONFIG} is missing: {folder} has no model that scores pairs; {remedy}")
        config = read_config(folder)
        pooling = read_pooling_entry(folder, config)
        scores = pooling == COSINE or config.num_labels == 1
        loaded = load_model(auto_class(pooling), folder, config) if scores else None
        if loaded is None or (pooling == CLS and loaded.absent):
            # An encoder loads too, with a random scoring layer.
            raise InputError(f"{folder} has no layer that gives one score per pair; {remedy}")
        tokenizer = load_tokenizer(folder)
        own = getattr(config, OWN_LENGTH, None)
        said = own or is_saved_cross_encoder(folder)
        known = (own or tokenizer.model_max_length, longest_text(loaded.model), None if said else UNSAID_LENGTH)
        length = min((number for number in known if isinstance(number, int)), default=0)
        if length < SHORTEST:
            raise InputError(f"{folder / CONFIG} asks for pairs of {known[0]!r} tokens, which is too few; {remedy}")
        refuse_larger_vocabulary(folder, tokenizer, loaded.model.get_input_embeddings())
        loaded.model.config.pad_token_id = tokenizer.pad_token_id
        activation = nn.Identity() if raw else read_activation(folder, config)
        return cls(loaded.model, tokenizer, length, pooling, activation, read_prompt(folder))

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        self.tokenizer.model_max_length = self.max_length
        save_tokenizer(self.tokenizer, folder)

    def pairs(self, queries: Sequence[str], passages: Sequence[str]) -> PairTexts:
        """Tokenize pairs. A pair that is too long loses the end of its passage; a very long query loses its own end.

        A passage of a corpus with `titles: sep` is read as `title: text`, as in SimLM's code, so the only separator is
        the one between query and passage.
        """
        with TOKENIZING:
            encoded = self.tokenizer(
                self._cut([self.prompt + query for query in queries] if self.prompt else queries),
                [joined_by_colon(passage) for passage in passages],
                truncation="only_second",
                max_length=self.max_length,
            )
        if self.pooling == COSINE:
            types = passage_halves(encoded)
        else:
            # A tokenizer says whether its model reads token types. Other tools rely on that, so this does too.
            types = encoded.get("token_type_ids") or [[0] * len(ids) for ids in encoded["input_ids"]]
        ids = TokenizedTexts(encoded["input_ids"], self.tokenizer.pad_token_id)
        return PairTexts(ids, TokenizedTexts(types, 0))

    def _cut(self, queries: Sequence[str]) -> list[str]:
        """The queries, cut to half of a pair's tokens, so that part of the passage is always read."""
        encoded = self.tokenizer(
            list(queries),
            add_special_tokens=False,
            truncation=True,
            max_length=self.max_length // 2,
            return_offsets_mapping=True,
        )
        ends = [offsets[-1][1] if offsets else 0 for offsets in encoded["offset_mapping"]]
        return [query[:end] for query, end in zip(queries, ends)]

    def forward(self, ids_PL: Tensor, mask_PL: Tensor, types_PL: Tensor) -> Tensor:
        """Raw scores [P], float32; the three int64 tensors are those of `PairTexts.batch`."""
        if self.pooling == COSINE:
            states_PLD = self.model(input_ids=ids_PL, attention_mask=mask_PL).last_hidden_state
            return cosine_of_halves(states_PLD, mask_PL, types_PL)
        types = {"token_type_ids": types_PL} if reads_types(self.model) else {}
        output = self.model(input_ids=ids_PL, attention_mask=mask_PL, **types, **self._options)
        return output.logits.float().squeeze(-1)
