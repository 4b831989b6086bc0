"""The cross-encoder: reads query and passage together and gives one score (SimLM §3.2, the re-ranker).

Shape suffixes: B queries, K candidates of a query, P pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stillhouse.acceleration.first_token import can_end_in_first_token
from stillhouse.acceleration.side_by_side import side_by_side, threads_of
from stillhouse.context import Context
from stillhouse.corpus.text_file import TextFile
from stillhouse.corpus.titles import joined_by_colon
from stillhouse.errors import InputError
from stillhouse.monitoring.activity import doing
from stillhouse.retrieval.models.encoder import TOKENIZING, TokenizedTexts, inference, length_batches
from stillhouse.retrieval.models.encoder_folder import refuse_bag_of_words
from stillhouse.retrieval.models.model_folder import keep_layers, load_model, read_config, reads_types, refuse_unusable
from stillhouse.retrieval.models.pair_pooling import (
    CLS,
    COSINE,
    auto_class,
    cosine_of_halves,
    passage_halves,
    read_activation,
    read_pooling_entry,
    read_prompt,
    write_pooling_entry,
)
from stillhouse.retrieval.models.positions import longest_text, refuse_longer
from stillhouse.retrieval.models.saved_files import CONFIG, is_saved_cross_encoder, transformer_in
from stillhouse.retrieval.models.score_log import ScoreLog
from stillhouse.retrieval.models.tokenizer_files import load_tokenizer, save_tokenizer
from stillhouse.retrieval.models.unsupported import refuse_adapter, refuse_unsupported, refuse_unsupported_scorer
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.training.ahead import Ahead
from stillhouse.training.batches import chunks

PAIRS_AT_ONCE = 16_384
OWN_LENGTH = "stillhouse_max_length"
"""The configuration entry for the most tokens of a pair."""
UNSAID_LENGTH = 512
"""The most tokens of a pair if the folder sets none. A ModernBERT reads 8,192, which would need too much memory."""
SHORTEST = 8
"""The smallest length that `train-reranker` accepts."""


class CrossEncoder(nn.Module):
    """A Transformer with one score per pair, from a scoring layer on [CLS] or without one (`pair_pooling.py`).

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
    ) -> CrossEncoder:
        """A new cross-encoder on a pre-trained encoder or a retriever.

        With `pooling` "cls" it has a scoring layer, drawn from torch's random state. `layers` keeps this many of the
        encoder's first layers. With `shorten`, a pair has no more tokens than the encoder reads. Raises `InputError` if
        the encoder has fewer layers, reads fewer tokens than `max_length` otherwise, or is a bag of words.
        """
        refuse_bag_of_words(folder)
        refuse_unsupported(folder)
        config = read_config(folder, **({"num_labels": 1} if pooling == CLS else {}))
        if layers and layers > config.num_hidden_layers:
            raise InputError(f"{folder} has {config.num_hidden_layers} layers, but `layers: {layers}` asks for more")
        keep_layers(config, layers or config.num_hidden_layers)
        model = load_model(auto_class(pooling), folder, config, cut=layers is not None).model
        if shorten:
            max_length = min(max_length, longest_text(model) or max_length)
        refuse_longer(model, str(folder), max_length=max_length)
        write_pooling_entry(model.config, pooling)
        setattr(model.config, OWN_LENGTH, max_length)
        tokenizer = load_tokenizer(folder)
        refuse_unusable(folder, model, tokenizer, of_pairs=True)
        return cls(model, tokenizer, max_length, pooling)

    @classmethod
    @doing("loading the cross-encoder")
    def load(cls, folder: str | PathLike[str], *, raw: bool = False) -> CrossEncoder:
        """Raises `InputError` for a folder without a model that gives one score per pair, and for a damaged one.

        With `raw`, the scores are those before the folder's activation function, whose sigmoid makes all good pairs
        nearly alike to a student.
        """
        folder = Path(folder)
        remedy = "`stillhouse train-reranker` makes a cross-encoder"
        refuse_adapter(folder)
        if is_saved_cross_encoder(folder):
            refuse_unsupported_scorer(folder)
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
        refuse_unusable(folder, loaded.model, tokenizer, of_pairs=True)
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
        scores_P: Tensor = output.logits.float().squeeze(-1)
        return scores_P


class PairTexts:
    """Tokenized pairs with their token types or halves (0 for the query, 1 for the passage)."""

    def __init__(self, ids: TokenizedTexts, types: TokenizedTexts) -> None:
        self.ids = ids
        self._types = types

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, rows: Sequence[int] | np.ndarray, device: object) -> tuple[Tensor, Tensor, Tensor]:
        ids_PL, mask_PL = self.ids.batch(rows, device)  # type: ignore[arg-type]
        types_PL, _ = self._types.batch(rows, device)  # type: ignore[arg-type]
        return ids_PL, mask_PL, types_PL


def score_pairs(
    model: CrossEncoder,
    queries: np.ndarray,
    passages: TextFile | np.ndarray,
    query_P: np.ndarray,
    row_P: np.ndarray,
    context: Context,
    what: str,
    config: InferenceConfig,
) -> np.ndarray:
    """Score the pairs (`queries[query_P]`, `passages[row_P]`) in length-sorted batches, float32 [P].

    Pairs are tokenized 16,384 at a time, one part ahead. Every finished batch is stored in `context.work`. A run after
    a kill computes only what is missing, in the same batches, so its scores are the same bit for bit.
    Raises `InputError` for a score that is not finite.
    """
    with ScoreLog(context.work, list(queries), query_P, row_P) as log, inference(model, context, config) as device:
        parts = [part for part in chunks(len(query_P), PAIRS_AT_ONCE) if not log.done_P[part].all()]

        def tokenized(number: int) -> PairTexts:
            part = parts[number]
            return model.pairs(list(queries[query_P[part]]), list(passages[row_P[part]]))

        done = int(log.done_P.sum())
        with Ahead(tokenized, len(parts)) as ahead, context.bar(what, len(query_P), "pair", done=done) as bar:
            for number, part in enumerate(parts):
                texts = ahead(number)
                batches = length_batches(texts.ids.lengths(), config.batch_tokens // threads_of(device))
                missing = (rows for rows in batches if not log.done_P[part[rows]].all())

                def score(rows: np.ndarray, texts: PairTexts = texts) -> np.ndarray:
                    return model.activation(model(*texts.batch(rows, device)).float()).cpu().numpy()

                for rows, scores in side_by_side(missing, score, config.precision, device):
                    if not np.isfinite(scores).all():
                        wrong = part[rows[np.argmin(np.isfinite(scores))]]
                        passage = passages[row_P[wrong : wrong + 1]][0]
                        raise InputError(
                            f"the cross-encoder's score of query {queries[query_P[wrong]][:80]!r} with passage "
                            f"{passage[:80]!r} is not finite; train the re-ranker again with a lower "
                            "learning rate, or score in fp32 (`precision: fp32`)"
                        )
                    log.add(part[rows], scores)
                    bar.update(len(rows))
        return log.scores_P


def stretch(pairs: int, shard: int, shards: int) -> slice:
    """The pairs of shard 1, 2 .. `shards`: whole tokenized chunks, divided as evenly as possible.

    `score_pairs` scores them in the same batches as it would all pairs together.
    """
    chunks = -(-pairs // PAIRS_AT_ONCE)
    begin, end = (PAIRS_AT_ONCE * (chunks * number // shards) for number in (shard - 1, shard))
    return slice(begin, min(end, pairs))
