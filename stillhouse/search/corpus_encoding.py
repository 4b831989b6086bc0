"""Encodes a corpus: known vectors are looked up, the others are computed and stored block by block.

The passages to compute are sorted by their length in characters and cut into blocks. While one block is encoded, the
next is tokenized and the last is written, so memory does not grow with the corpus, and a killed run loses two blocks.
The processes of torchrun share every block. Since a text's vector does not depend on other texts (`encoder.encode`),
the result does not depend on blocks, processes or earlier runs.
"""

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

from stillhouse.core.artifacts import digest_bytes, digest_json
from stillhouse.core.context import Context, embeddings_root, rank, world_size
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.corpus.store import Corpus, passage_text_blocks
from stillhouse.corpus.table_file import TextFile
from stillhouse.models.acceleration.batches import Ahead, Behind
from stillhouse.models.acceleration.device import computed_in
from stillhouse.models.acceleration.processes import join, wait_for_all
from stillhouse.models.encoder import BiEncoder, EncoderTexts, encode, inference
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.towers import ModuleTower, Tower, TransformerTower
from stillhouse.models.transformer import configuration
from stillhouse.search.embeddings import DIGEST, Embeddings, move_segments, prune, text_digests, touch, write_segment
from stillhouse.search.settings import EncodingConfig

BLOCK = 4096
"""Passages tokenized, encoded and written together on a CPU."""
BLOCKS_ON_A_GPU = 8
"""On a GPU, blocks are this many times larger: each block's last batches are filled up, and the GPU waits between
blocks."""

Texts = Callable[[NDArray[np.int64]], Iterable[Sequence[str]]]
"""Yields the texts of distinct, ascending corpus rows, one part at a time."""


VERSION = 1
"""Raise it, with the versions of the steps that encode, when the same model gives the same text another vector."""


@doing("computing the model's digest")
def model_key(encoder: BiEncoder, config: InferenceConfig, context: Context) -> str:
    """The digest of everything that turns a text into a passage vector, 20 hexadecimal digits.

    It covers the passage tower with its weights, the tokenizer, length, prompt, pooling, normalisation and precision.
    """
    tower, settings = encoder.tower("passage"), encoder.settings
    made_of = {
        "weights": {name: _tensor_digest(tensor) for name, tensor in tower.state_dict().items()},
        "tower": [type(tower).__name__, _architecture(tower)],
        "tokenizer": tokenizer_digest(encoder.tokenizer),
        "settings": [settings.pooling, settings.normalize, settings.passage_length, settings.passage_prompt],
        "width": encoder.width,
        "precision": str(computed_in(config.precision, context.torch_device())),
    }
    return digest_json(made_of)[:20]


def cache_folder(model: str, config: InferenceConfig, context: Context) -> Path:
    """The folder that caches a model's passage vectors for later runs.

    Its name is the digest of `model_key` and of everything else that can change a vector's last bits: the libraries,
    the CPU or GPU, the batch size on a GPU, and `VERSION`.
    """
    device = context.torch_device()
    on_gpu = device.type == "cuda"
    hardware = torch.cuda.get_device_name(device) if on_gpu else torch.backends.cpu.get_cpu_capability()
    libraries = [torch.__version__, transformers.__version__, tokenizers.__version__]
    machine = [device.type, hardware, config.batch_tokens if on_gpu else 0]
    return embeddings_root() / digest_json([model, libraries, machine, VERSION])[:20]


@dataclass(frozen=True)
class Encoded:
    """The passages' embeddings, their texts' digests, and counts of where the vectors came from.

    `computed` texts were encoded now; the other passages were known from earlier runs or an unfinished one.
    """

    embeddings: Embeddings
    digests_N: NDArray[np.bytes_]
    computed: int


def _tensor_digest(tensor: torch.Tensor) -> str:
    array = tensor.detach().cpu().contiguous()
    return f"{array.dtype} {list(array.shape)} {digest_bytes(array.flatten().view(torch.uint8).numpy().tobytes())}"


def _architecture(tower: Tower) -> Any:
    """A tower's modules, or its Transformer's configuration without its origin."""
    if isinstance(tower, ModuleTower):
        return tower.about()
    return configuration(tower.encoder) if isinstance(tower, TransformerTower) else {}


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """The digest of a tokenizer without its last truncation and padding."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    added = [tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.truncation_side]
    return digest_json([content | {"truncation": None, "padding": None}, added])


@doing("computing the passages' digests")
def digests_of(texts: Texts, rows: NDArray[np.int64]) -> tuple[NDArray[np.bytes_], NDArray[np.int32]]:
    """The digests and the lengths in characters of the texts of some rows, read a part at a time."""
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
    shards: Sequence[Path] = (),
    rows: NDArray[np.int64] | None = None,
) -> Encoded:
    """The embeddings of a corpus's passages, or of ascending `rows`: from `shards`, from the cache, or computed now.

    Computed vectors are cached for later runs as far as `config.cache_gib` allows. Raises as `encode_passages` does.
    """
    trained = encoder.settings.titles
    if trained not in ("", corpus.titles):
        context.log(
            f"the retriever was trained on passages with `titles: {trained}`, but this corpus has `titles: "
            f"{corpus.titles}`: it may rank worse; ingest the corpus with {trained}"
        )
    rows = np.arange(corpus.passage_count) if rows is None else rows
    keep = config.cache_gib > 0
    kept = cache_folder(model_key(encoder, config, context), config, context)
    known = [*shards, *([kept] if keep and not shards else [])]
    # The work folder uses the same name, so a run that is resumed on other hardware starts over.
    new = context.work / kept.name
    encoded = encode_passages(
        encoder, partial(passage_text_blocks, corpus), corpus.passage_ids, rows, known, new, context, config
    )
    if keep and rank() == 0:
        touch(segment for segment in encoded.embeddings.used if segment.parent == kept)
        move_segments(new, kept)
        removed = prune(embeddings_root(), config.cache_gib)
        if removed:
            context.log(f"removed the {removed} least recently used files of vectors: cache_gib is reached")
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
    """The embeddings of the passages in `rows` of a corpus, which ascend.

    Vectors are taken from the folders `known` and from `new`, where a killed run may have left some. The others are
    encoded and written to `new`. Each process copies only the texts that it encodes to a temporary file. Every process
    of torchrun returns when all are done. Raises `InputError`, with the passage's id, for a vector that is not finite,
    and `RuntimeError` if vectors that were just written are damaged or gone.
    """
    join(context.torch_device())
    digests_N, lengths_N = digests_of(texts, rows)
    found = Embeddings(known, digests_N, encoder.width)
    kept = found.known
    found.look_in([new])
    resumed = found.known - kept
    if kept or resumed:
        context.log(f"of {len(rows)} passages {kept} are known from earlier runs and {resumed} from an unfinished one")
    # All processes must see the same segments before any adds one, because blocks must be the same everywhere.
    wait_for_all()
    missing = found.missing[np.argsort(-lengths_N[found.missing], kind="stable")]
    at_once = BLOCK * (BLOCKS_ON_A_GPU if context.torch_device().type == "cuda" else 1)
    size = at_once * world_size()  # keeps the size of vector files independent of the number of processes
    blocks = [missing[start : start + size] for start in range(0, len(missing), size)]
    # Dealt out like cards, so every process gets texts of the same lengths.
    own = [part for part in (block[rank() :: world_size()] for block in blocks) if len(part)]
    read = rows[np.concatenate([missing[:0], *own])]
    read.sort()
    aside = TextFile(texts(read), context.work, read)

    def tokenized(number: int) -> EncoderTexts:
        return encoder.passages(list(aside[rows[own[number]]]))

    # Pack the weights once for all blocks.
    with inference(encoder, context, config), Ahead(tokenized, len(own)) as ahead, Behind() as behind:
        for number, block in enumerate(own):
            vectors = encode(encoder, ahead(number), context, f"encoding {number + 1}/{len(own)}", config)
            refuse_not_finite(vectors, rows[block], passage_ids)
            behind(write_segment, new, digests_N[block], vectors)
    wait_for_all()
    if rank() == 0:  # only the first process goes on
        found.look_in([new])
        if len(found.missing):
            raise RuntimeError(
                f"the vectors of {len(found.missing)} passages were just written but cannot be read back; try again"
            )
    return Encoded(found, digests_N, len(missing))


def refuse_not_finite(vectors_BD: NDArray[np.float32], rows: NDArray[np.integer], passage_ids: PassageIds) -> None:
    """Refuse NaN and infinite vectors, which no search can rank."""
    bad = ~np.isfinite(vectors_BD).all(axis=1)
    if bad.any():
        raise InputError(
            f"the vector of passage {passage_ids[rows[bad].min()].item()!r} is not finite (nor are {bad.sum() - 1} "
            "others): the model is damaged, or its training diverged; train it again with a lower learning_rate"
        )
