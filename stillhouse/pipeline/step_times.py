"""Estimates how long a step takes, from its arithmetic and this machine's speed.

It counts the products of the transformer's weights with tokens: two operations per weight and token in the forward
pass, and twice as many again in the backward pass. Their speed is measured on a short product, in the precision and
with the library that the step will use. The rest of a layer takes the same time in any precision and is estimated from
the speed in fp32. docs/findings-speed.md compares estimates with measured times. There are no estimates for a GPU.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.context import device
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.titles import SPACE, passage_text
from stillhouse.corpus.words import estimated_tokens
from stillhouse.models.token_lengths import token_lengths
from stillhouse.pipeline.graph_steps import GraphStep, step_of

if TYPE_CHECKING:
    import torch

TRAINED = 3.0
"""The operations of a training step, as a multiple of a forward pass."""
CACHED = 4.0
"""The same with `gradient_cache`, which computes every forward pass twice."""
BESIDE_PRODUCTS = 0.85
"""The time that a model needs besides its matrix products (attention, normalisation, activations, memory access), as a
multiple of the time of these products in fp32."""
OVERHEAD = 1.4
"""Seconds that a step needs besides the model: to import libraries, verify and load its inputs, write its outputs."""
PER_TOKEN: Mapping[str, float] = {"ingest": 4e-7, "validate": 1.5e-7, "bm25": 6e-7}
"""Seconds that a step without a model takes per token of the passages, measured in runs of docs/findings-speed.md."""
BM25_SEARCH = 2.2e-8
"""Seconds for BM25 to score one passage for one query; the queries of all splits are searched."""
PROJECTED = 1.2e-5
"""Seconds per step and passage of a `train-projection` of width 384."""
ON_GPU = "run times can only be predicted for a CPU, and this run uses a GPU"
"""Why there is no forecast."""
QUERY_TOKENS = 20
WRITER_WEIGHTS = 106_000_000
"""Those of the layers of SmolLM2-135M, which writes questions unless a recipe names another model, and of a model whose
size is not known."""
WRITTEN = 4
"""Generating one token takes about as long as reading this many."""
SECONDS_MEASURED = 0.2
"""CPU-seconds for each measurement of the CPU's speed."""
DEVICES = Path("/dev")
PASSAGES_READ = 300
"""The passages that the mean length is computed from."""


@dataclass(frozen=True)
class Scale:
    """What determines the time of a run. `weights` counts the encoder layers' weights, `tokens` those of a truncated
    passage."""

    passages: int
    queries: Mapping[str, int]
    tokens: float
    weights: int


def scale_of(corpus: Path, encoder: Path) -> Scale | None:
    """The scale of a run, from its corpus and its base model; None before both exist.

    A process reads and tokenizes passages once, until the corpus or the model in these folders changes.
    """
    with suppress(InputError, OSError, KeyError, ValueError, TypeError):
        corpus_digest, encoder_digest = (read_manifest(folder, verify=False).digest for folder in (corpus, encoder))
        return _scale_of(corpus, corpus_digest, encoder, encoder_digest)
    return None


@cache
def _scale_of(corpus: Path, corpus_digest: str, encoder: Path, encoder_digest: str) -> Scale:
    """The scale of a run; the digests tell new content of the folders from old. Raises what reading them raises."""
    import pyarrow.parquet as pq

    facts = read_manifest(corpus, verify=False).facts
    config = json.loads((encoder / "config.json").read_text(encoding="utf-8"))
    cut = json.loads((encoder / "stillhouse.json").read_text(encoding="utf-8"))["passage_length"]
    table = next(pq.ParquetFile(corpus / "passages.parquet").iter_batches(PASSAGES_READ, columns=["title", "text"]))
    rows = zip(*(table.column(name).to_pylist() for name in ("title", "text")))
    texts = [passage_text(title, text, facts.get("titles", SPACE)) for title, text in rows]
    lengths = token_lengths(texts, encoder) or [estimated_tokens(text) for text in texts]
    return Scale(int(facts["passages"]), dict(facts["queries"]), mean_tokens(lengths, cut), layer_weights(config))


def mean_tokens(lengths: Sequence[int], cut: int) -> float:
    """The mean number of tokens of passages with these numbers of tokens, truncated at `cut`."""
    return sum(min(length, cut) for length in lengths) / len(lengths)


def layer_weights(config: Mapping[str, Any]) -> int:
    """The number of weights in a transformer's layers: four matrices of attention, two of the feed-forward part.

    A gated feed-forward part, as in ModernBERT and most decoders, has three. Many decoders share keys and values among
    heads.
    """
    config = {**(config.get("text_config") or {}), **config}
    width = int(config.get("hidden_size") or config["dim"])
    inner = int(config.get("intermediate_size") or config.get("hidden_dim") or 4 * width)
    layers = int(config.get("num_hidden_layers") or config["n_layers"])
    heads = int(config.get("num_attention_heads") or 1)
    shared = config.get("num_key_value_heads")
    attention = 2 * width * int(config.get("head_dim") or width // heads) * (heads + int(shared or heads))
    matrices = 3 if shared or config.get("model_type") == "modernbert" else 2
    return layers * (attention + matrices * width * inner)


def weights_of(model: str, layers: int | None = None) -> tuple[int, str]:
    """The number of weights in the (first) layers of a base model, or 0 and why it is not known."""
    from stillhouse.models.model_place import place_of
    from stillhouse.pipeline.start_model import config_of

    try:
        folder = place_of(model)
        if folder is None:
            return 0, f"the base model {model} is not on this machine; `fetch-model` downloads it"
        kept = {"num_hidden_layers": layers} if layers else {}
        return layer_weights({**config_of(folder), **kept}), ""
    except InputError as error:
        return 0, str(error)
    except (ValueError, KeyError, TypeError):
        return 0, f"the configuration of the base model {model} does not say how large it is"


def seconds_of(steps: Sequence[GraphStep], settings: Mapping[str, Any], scale: Scale) -> dict[str, float]:
    """The time of each step. A `generate-queries` with a generator has the model that this was trained from."""
    found = {}
    for step in steps:
        config = settings[step.name]
        if step.kind == "generate-queries" and (writer := step.inputs.get("generator")):
            config = replace(config, model=settings[step_of(writer)].model)
        found[step.name] = predicted_seconds(step.kind, config, scale)
    return found


def predicted_seconds(step: str, config: Any, scale: Scale) -> float:
    """How many seconds a step with these settings takes on this machine's CPU."""
    beside = OVERHEAD + PER_TOKEN.get(step, 0.0) * scale.passages * scale.tokens
    if step == "bm25":
        beside += BM25_SEARCH * scale.passages * _asked(scale, "train", "dev", "test")
    if step == "train-projection":
        beside += PROJECTED * _steps(_asked(scale, "train"), config) * min(scale.passages, config.passages_at_once)
    count = TOKENS.get(step)
    tokens = count(config, scale) if count else 0.0
    if not tokens:
        return beside
    writes = step in ("train-generator", "generate-queries")
    weights = (weights_of(config.model)[0] or WRITER_WEIGHTS) if writes else scale.weights
    return beside + 2.0 * weights * tokens / model_speed(config.precision)


def on_processor() -> bool:
    """Whether steps run on the CPU, because that was requested or there is no NVIDIA GPU."""
    return device() == "cpu" or not any(DEVICES.glob("nvidia[0-9]*"))  # a container may have another than the first


@cache
@doing("measuring the speed of this machine")
def model_speed(precision: str) -> float:
    """Operations per second that a model reaches on the CPU with a setting `precision`."""
    import torch

    from stillhouse.models.acceleration.device import computed_in

    products, in_fp32 = speed(computed_in(precision, torch.device("cpu"))), speed(torch.float32)
    return 1 / (1 / products + BESIDE_PRODUCTS / in_fp32)


@cache
def speed(dtype: torch.dtype) -> float:
    """Operations per second of a linear layer on the CPU, computed as in training.

    It is the best of many short runs, none of which waits for another program.
    """
    import torch

    from stillhouse.models.acceleration.replaced import fast_linear_layers

    layer, rows = torch.nn.Linear(384, 1536, dtype=dtype), torch.ones(256, 384, dtype=dtype)
    best, until = math.inf, time.process_time() + SECONDS_MEASURED
    with torch.inference_mode(), fast_linear_layers(layer, torch.device("cpu")):
        while time.process_time() < until:
            started = time.perf_counter()
            layer(rows)
            best = min(best, time.perf_counter() - started)
    return 2.0 * rows.numel() * layer.out_features / best


def _asked(scale: Scale, *splits: str) -> int:
    return sum(scale.queries.get(split, 0) for split in splits)


def _queries(*splits: str) -> Callable[[Any, Scale], float]:
    return lambda config, scale: _asked(scale, *splits) * QUERY_TOKENS


def steps_of(step: str, config: Any, scale: Scale) -> int:
    """The number of steps of a training."""
    return _steps(TRAININGS[step](scale), config)


def _steps(examples: int, config: Any) -> int:
    from stillhouse.training.batches import steps_for

    return steps_for(max(1, examples), config.batch_size, config.epochs, config.max_steps)


def _examples(step: str, config: Any, scale: Scale) -> float:
    """The examples of all steps of a training, times the passes over each, with its measurements on dev queries."""
    passes = CACHED if getattr(config, "gradient_cache", False) else TRAINED
    measured = 1 + (getattr(config, "eval_share", None) or 0.0)
    return passes * measured * steps_of(step, config, scale) * min(config.batch_size, TRAININGS[step](scale))


def _groups(config: Any, scale: Scale) -> float:
    """A training on queries with their positives and negatives."""
    read = QUERY_TOKENS + (1 + config.negatives_per_query) * scale.tokens
    return _examples("train-retriever", config, scale) * read


def _pairs(config: Any, scale: Scale) -> float:
    """A training of a cross-encoder on the same groups, which reads each candidate with its query."""
    read = (1 + config.negatives_per_query) * _at_most(config.max_length, QUERY_TOKENS + scale.tokens)
    return _examples("train-reranker", config, scale) * read


def _pretraining(config: Any, scale: Scale) -> float:
    """Pre-training, with 50 % more for the decoder and the head. A head alone needs no backward pass of the layers."""
    passes = 1.5 if config.trainable == "all" else 1.5 / TRAINED
    return passes * _examples("pretrain", config, scale) * _at_most(config.max_length, scale.tokens)


def _at_most(max_length: int | None, tokens: float) -> float:
    """The tokens of a text; a length taken from the model truncates none."""
    return min(max_length or tokens, tokens)


def _scored(*splits: str) -> Callable[[Any, Scale], float]:
    """Each query with its candidates; a fused teacher may need no cross-encoder."""

    def tokens(config: Any, scale: Scale) -> float:
        if getattr(config, "kind", "") == "best":
            return _asked(scale, *splits) * QUERY_TOKENS
        return _asked(scale, *splits) * config.depth * (QUERY_TOKENS + scale.tokens)

    return tokens


def _learned(config: Any, scale: Scale) -> float:
    """A generator's training, as if there were as many pairs as it takes at most."""
    pairs = config.max_pairs or max(1, _asked(scale, "train"))
    steps = _steps(pairs, config)
    return TRAINED * steps * min(config.batch_size, pairs) * (config.passage_tokens + QUERY_TOKENS)


def _written(config: Any, scale: Scale) -> float:
    """The passages that a model on this machine reads, and the questions that it writes."""
    if config.base_url:
        return 0.0
    asked = min(config.max_passages or scale.passages, scale.passages)
    return asked * (scale.tokens + WRITTEN * QUERY_TOKENS * config.queries_per_passage)


def _chosen(config: Any, scale: Scale) -> float:
    """The dev queries, and the passages' tokens for late interaction."""
    late = scale.passages * scale.tokens if config.fusion == "auto" else 0.0
    return _asked(scale, "dev") * QUERY_TOKENS + late


def _averages(config: Any, scale: Scale) -> float:
    """The dev queries' candidates, once per share; the vectors of both ends are known from their indexes."""
    between = [alpha for alpha in config.alphas if 0 < alpha < 1]
    dev = min(config.eval_queries or _asked(scale, "dev"), _asked(scale, "dev"))
    read = min(scale.passages, dev * config.eval_depth) * scale.tokens + dev * QUERY_TOKENS
    return len(between) * read


TRAININGS: Mapping[str, Callable[[Scale], int]] = {
    "train-retriever": lambda scale: max(1, _asked(scale, "train")),
    "train-reranker": lambda scale: max(1, _asked(scale, "train")),
    "pretrain": lambda scale: max(1, scale.passages),
}
"""How many examples each training has."""
TOKENS: Mapping[str, Callable[[Any, Scale], float]] = {
    "index": lambda config, scale: scale.passages * scale.tokens,
    "encode": lambda config, scale: scale.passages * scale.tokens,
    "retrieve": _queries("dev", "test"),
    "mine": _queries("train", "dev"),
    "train-generator": _learned,
    "generate-queries": _written,
    "train-retriever": _groups,
    "train-reranker": _pairs,
    "pretrain": _pretraining,
    "score-pairs": _scored("train", "dev"),
    "score-shard": _scored("train", "dev"),
    "rerank": _scored("dev", "test"),
    "train-projection": _queries("train", "dev"),
    "train-query-encoder": lambda config, scale: _examples("train-retriever", config, scale) * QUERY_TOKENS,
    "average": _averages,
    "hybrid": _queries("dev"),
    "select-best": _chosen,
}
"""The tokens that a step's model reads; trainings count three times, and other steps read none."""
