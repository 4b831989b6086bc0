"""Encoding a corpus: what is known already is looked up, the rest is computed in blocks that are kept one by one.

The passages to compute are sorted by their length in characters and cut into blocks. A block is tokenized, encoded and
written, and one more is tokenized meanwhile, so that memory does not grow with the corpus and a killed run loses one.
Several processes started by torchrun take turns at the blocks. As a text's vector does not depend on the others
(`encoder.encode`), neither blocks nor processes nor earlier runs show in the result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from stillhouse.acceleration.precision import computed_in
from stillhouse.artifacts import digest_bytes, digest_json
from stillhouse.context import Context, embeddings_root, rank, world_size
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.corpus.store import Corpus, passage_text_blocks
from stillhouse.corpus.text_file import TextFile
from stillhouse.errors import InputError
from stillhouse.monitoring.activity import doing
from stillhouse.retrieval.index.embeddings import (
    DIGEST,
    Embeddings,
    move_segments,
    prune,
    text_digests,
    touch,
    write_segment,
)
from stillhouse.retrieval.models.encoder import BiEncoder, EncoderTexts, encode, inference
from stillhouse.retrieval.models.towers import TransformerTower
from stillhouse.retrieval.settings import EncodingConfig, InferenceConfig
from stillhouse.training.ahead import Ahead
from stillhouse.training.processes import join, wait_for_all

BLOCK = 4096
"""Passages that are tokenized, encoded and written at once."""

Texts = Callable[[NDArray[np.int64]], Iterable[Sequence[str]]]
"""The texts of some rows of the corpus, which ascend and are there once each; some texts at a time."""


@doing("computing the model's digest")
def model_key(encoder: BiEncoder, config: InferenceConfig, context: Context) -> str:
    """The digest of what makes a text a passage's vector, 20 hexadecimal digits.

    That is the passages' tower with its weights, the tokenizer, length, prompt, pooling, normalisation, and the
    precision.
    """
    tower, settings = encoder.tower("passage"), encoder.settings
    made_of = {
        "weights": {name: _tensor_digest(tensor) for name, tensor in tower.state_dict().items()},
        "tower": [type(tower).__name__, _architecture(tower.encoder) if isinstance(tower, TransformerTower) else {}],
        "tokenizer": tokenizer_digest(encoder.tokenizer),
        "settings": [settings.pooling, settings.normalize, settings.passage_length, settings.passage_prompt],
        "precision": str(computed_in(config.precision, context.torch_device())),
    }
    return digest_json(made_of)[:20]


def cache_folder(model: str, config: InferenceConfig, context: Context, code: str) -> Path:
    """Where the passages' vectors of a model are kept for later runs.

    Its name is the digest of `model_key` and of what else shows in a vector's last bits: the libraries, the processor
    or GPU, on a GPU how many texts it computes at once, and `code`, the digest of Stillhouse's own code.
    """
    device = context.torch_device()
    on_gpu = device.type == "cuda"
    hardware = torch.cuda.get_device_name(device) if on_gpu else torch.backends.cpu.get_cpu_capability()
    libraries = [torch.__version__, transformers.__version__, tokenizers.__version__]
    machine = [device.type, hardware, config.batch_tokens if on_gpu else 0]
    return embeddings_root() / digest_json([model, libraries, machine, code])[:20]


@dataclass(frozen=True)
class Encoded:
    """The passages' embeddings, their texts' digests, and how many passages came from where.

    `kept` were known from earlier runs, `resumed` from an unfinished one; `computed` texts were encoded now.
    """

    embeddings: Embeddings
    digests_N: NDArray[np.bytes_]
    kept: int
    resumed: int
    computed: int


def _tensor_digest(tensor: torch.Tensor) -> str:
    array = tensor.detach().cpu().contiguous()
    return f"{array.dtype} {list(array.shape)} {digest_bytes(array.flatten().view(torch.uint8).numpy().tobytes())}"


def _architecture(model: Any) -> dict[str, Any]:
    """A Transformer's configuration without what says where it came from."""
    content: dict[str, Any] = json.loads(model.config.to_json_string(use_diff=False))
    return {name: value for name, value in content.items() if name not in ("_name_or_path", "transformers_version")}


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """The digest of how a tokenizer cuts text, whatever it was last asked to truncate or pad to."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    added = [tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.truncation_side]
    return digest_json([content | {"truncation": None, "padding": None}, added])


@doing("computing the passages' digests")
def digests_of(texts: Texts, rows: NDArray[np.int64]) -> tuple[NDArray[np.bytes_], NDArray[np.int32]]:
    """The digest and the length in characters of the texts of some rows, read a part at a time."""
    digests_N, lengths_N = np.empty(len(rows), DIGEST), np.empty(len(rows), np.int32)
    begin = 0
    for part in texts(rows):
        end = begin + len(part)
        digests_N[begin:end] = text_digests(part)
        lengths_N[begin:end] = np.fromiter(map(len, part), dtype=np.int32, count=len(part))
        begin = end
    assert begin == len(rows), (begin, len(rows))
    return digests_N, lengths_N


def encode_corpus(
    encoder: BiEncoder,
    corpus: Corpus,
    context: Context,
    config: EncodingConfig,
    code: str,
    shards: Sequence[Path] = (),
    rows: NDArray[np.int64] | None = None,
) -> Encoded:
    """The embeddings of a corpus's passages, or of `rows`, which ascend: from `shards`, what is kept, or computed now.

    Vectors that are computed are kept for later runs as far as `config.cache_gib` allows; `code` is the digest of
    Stillhouse's own code. `encode_passages` says what is raised.
    """
    trained = encoder.settings.titles
    if trained not in ("", corpus.titles):
        context.log(
            f"the retriever was trained on passages with `titles: {trained}`, and this corpus has `titles: "
            f"{corpus.titles}`: it may rank worse; ingest the corpus with {trained}"
        )
    rows = np.arange(corpus.passage_count) if rows is None else rows
    keep = config.cache_gib > 0
    kept = cache_folder(model_key(encoder, config, context), config, context, code)
    known = [*shards, *([kept] if keep and not shards else [])]
    # Under the same name in the work folder: a run that is taken up on other hardware begins anew.
    new = context.work / kept.name
    encoded = encode_passages(
        encoder, partial(passage_text_blocks, corpus), corpus.passage_ids, rows, known, new, context, config
    )
    if keep and rank() == 0:
        touch(segment for segment in encoded.embeddings.used if segment.parent == kept)
        move_segments(new, kept)
        removed = prune(embeddings_root(), config.cache_gib)
        if removed:
            context.log(f"{removed} files of vectors that were used longest ago were removed: cache_gib is reached")
    return encoded


def encode_passages(
    encoder: BiEncoder,
    texts: Texts,
    passage_ids: PassageIds,
    rows: NDArray[np.int64],
    known: Iterable[Path],
    new: Path,
    context: Context,
    config: InferenceConfig,
) -> Encoded:
    """The embeddings of the passages `rows` of a corpus, which ascend.

    What the folders `known` hold is taken from there, and what a run that was killed has left in the folder `new`; the
    rest is encoded and written to `new`. Its texts alone are put aside on the disk, by each process those that it
    encodes. Every process of torchrun returns once all are done.
    Raises `InputError` for a vector that is not finite, with the passage's id; `RuntimeError` where vectors are damaged
    or gone as soon as they are written.
    """
    known = list(known)
    join(context.torch_device())
    digests_N, lengths_N = digests_of(texts, rows)
    found = Embeddings(known, digests_N, encoder.width)
    kept = found.known
    found.look_in([new])
    resumed = found.known - kept
    if kept or resumed:
        context.log(f"of {len(rows)} passages {kept} are known from earlier runs, {resumed} from before this one ended")
    # All have seen the same segments before any adds one: blocks must be the same everywhere.
    wait_for_all()
    missing = found.missing[np.argsort(-lengths_N[found.missing], kind="stable")]
    size = BLOCK * world_size()  # a file of vectors is as large in one process as in many
    blocks = [missing[start : start + size] for start in range(0, len(missing), size)]
    # Dealt out like cards, so that every process gets as many texts of a length as the others.
    own = [part for part in (block[rank() :: world_size()] for block in blocks) if len(part)]
    read = rows[np.concatenate([missing[:0], *own])]
    read.sort()
    aside = TextFile(texts(read), context.work, read)

    def tokenized(number: int) -> EncoderTexts:
        return encoder.passages(list(aside[rows[own[number]]]))

    # Weights are packed once for all blocks.
    with inference(encoder, context, config), Ahead(tokenized, len(own)) as ahead:
        for number, block in enumerate(own):
            vectors = encode(encoder, ahead(number), context, f"encoding {number + 1}/{len(own)}", config)
            refuse_not_finite(vectors, rows[block], passage_ids)
            write_segment(new, digests_N[block], vectors)
    wait_for_all()
    if rank() > 0:  # the first process alone goes on
        return Encoded(found, digests_N, kept, resumed, len(missing))
    found.look_in([new])
    if len(found.missing):
        raise RuntimeError(
            f"the vectors of {len(found.missing)} passages are not on the disk as they were just written; try again"
        )
    return Encoded(found, digests_N, kept, resumed, len(missing))


def refuse_not_finite(vectors_BD: NDArray[np.float32], rows: NDArray[np.integer], passage_ids: PassageIds) -> None:
    """Refuses NaN and infinite vectors, which no search can rank."""
    bad = ~np.isfinite(vectors_BD).all(axis=1)
    if bad.any():
        raise InputError(
            f"the vector of passage {passage_ids[rows[bad].min()].item()!r} is not a number (nor are {bad.sum() - 1} "
            "others): the model is damaged, or its training diverged; train it again, at a lower learning_rate"
        )
