"""Encoding passages with encoders of BERT-base's and of MiniLM's size, for a GPU: the part `encoding` of `gpu`.

Weights are random, and passages are random words with natural lengths. The script does everything that `stillhouse
encode` does, from texts to vectors on disk; sentence-transformers encodes some of the same texts into memory.
`--passages 500` tries it without a GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from benchmarks import objectives
from benchmarks.clock import Clock, kernel_seconds, matrix_peak
from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import from_template, write_as_measured
from benchmarks.training_sides import PEER
from benchmarks.waiting import Waiting, of_encoding
from benchmarks.word_passages import word_blocks
from stillhouse.core.context import Context
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.models.acceleration.device import computed_in
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.settings import InferenceConfig
from stillhouse.search.corpus_encoding import encode_passages

LENGTH, ROWS_AT_ONCE = 144, 8192
SIZES = {"BERT-base": (12, 768), "MiniLM": (6, 384)}
"""Layers and width."""
TARGET = 30_000
"""Passages a second of 70 tokens, MiniLM's size, bf16."""
FEW = 20_000
"""Passages that sentence-transformers encodes, and that are profiled."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = command("gpu_encoding", __doc__)
    parser.add_argument("--passages", type=int, default=200_000)
    parser.add_argument("--layers", type=int, default=12, help="of the encoder that --only-model writes")
    parser.add_argument("--width", type=int, default=768, help="a multiple of 32")
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[16_384, 65_536, 262_144])
    parser.add_argument("--only-model", type=Path, help="write the encoder to this folder, and measure nothing")
    arguments = parser.parse_args(argv)
    if arguments.only_model:
        random_encoder(arguments.layers, arguments.width, arguments.only_model)
        return 0
    write_as_measured(report, arguments)
    return 0


def report(folder: Path, arguments: argparse.Namespace) -> Iterator[str]:
    # a word is some three tokens
    texts = list(chain.from_iterable(block for _, block in word_blocks(arguments.passages, 22)))
    device = Context(folder, quiet=True).torch_device()
    clock, precision = Clock(device), computed_in(InferenceConfig().precision, device)
    peak, numbers = matrix_peak(precision, clock), str(precision).removeprefix("torch.")
    yield from ("# Encoding", "", "Command: `python -m benchmarks gpu --folder build/gpu --only base encoding`.", "")
    yield machine("torch", "transformers", "sentence-transformers", "numpy")
    yield ""
    given = {"count": len(texts), "length": LENGTH, "numbers": numbers, "few": FEW, "target": TARGET}
    yield from from_template("gpu_encoding", **given, peak=peak / 1e12)
    yield ""
    yield "| size | padded tokens a batch | tokens a passage | passages/s | share | making | kernels |"
    yield "|---|---|---|---|---|---|---|"
    for name in SIZES:
        yield from rows(name, texts, arguments.batch_tokens, folder / name, clock, precision, peak)


def rows(
    name: str, texts: list[str], batches: Sequence[int], folder: Path, clock: Clock, precision: torch.dtype, peak: float
) -> Iterator[str]:
    """A row for each size of a batch, and one for sentence-transformers."""
    layers, width = SIZES[name]
    encoder, few = random_encoder(layers, width, folder / "model"), texts[:FEW]
    starts = range(0, len(texts), ROWS_AT_ONCE)
    tokens = np.concatenate([encoder.passages(texts[begin : begin + ROWS_AT_ONCE]).lengths() for begin in starts])
    # Of the matrix products of a forward pass over each passage, a multiplication and an addition each.
    operations = float((2 * layers * tokens * (12.0 * width**2 + 2 * tokens * width)).sum())
    for batch_tokens in batches:

        def run(part: list[str], label: str, batch_tokens: int = batch_tokens) -> tuple[float, float]:
            return measure(encoder, part, batch_tokens, folder / f"{batch_tokens} {label}", clock)

        run(texts[:ROWS_AT_ONCE], "first")
        seconds, making = run(texts, "all")
        whole, busy = run(few, "few")[0], kernel_seconds(partial(run, few, "profiled"), clock.device)
        cells = [name, f"{batch_tokens:,}", f"{tokens.mean():.0f}", f"{len(texts) / seconds:,.0f}"]
        cells += [f"{share:.0%}" for share in (operations / seconds / peak, making / seconds, busy / whole)]
        yield f"| {' | '.join(cells)} |"
    peer = SentenceTransformer(str(folder / "model"), device=str(clock.device))
    peer.max_seq_length = LENGTH
    with torch.autocast(clock.device.type, dtype=precision):
        peer.encode(texts[:2000], batch_size=256, show_progress_bar=False)
        begun = clock()
        peer.encode(few, batch_size=256, show_progress_bar=False)
        rate = len(few) / (clock() - begun)
    yield f"| {name}, {PEER} | | {tokens[: len(few)].mean():.0f} | {rate:,.0f} | | | |"


def random_encoder(layers: int, width: int, folder: Path) -> BiEncoder:
    heads, inner = max(1, width // 64), 4 * width
    size = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": inner}
    objectives.random_encoder(folder, size)
    return BiEncoder.load(folder, pooling="cls", passage_length=LENGTH)


def measure(encoder: BiEncoder, texts: list[str], batch_tokens: int, work: Path, clock: Clock) -> tuple[float, float]:
    """Seconds, and those that the other thread took to make batches."""

    def some(rows: np.ndarray) -> Iterator[list[str]]:
        for begin in range(0, len(rows), ROWS_AT_ONCE):
            yield [texts[row] for row in rows[begin : begin + ROWS_AT_ONCE]]

    waiting, rows, ids = Waiting(), np.arange(len(texts)), PassageIds([f"p{row}" for row in range(len(texts))])
    context, config = Context(work, quiet=True), InferenceConfig(batch_tokens=batch_tokens)
    begun = clock()
    with waiting.of(*of_encoding()):
        done = encode_passages(encoder, some, ids, rows, (), work / "new", context, config)
    seconds = clock() - begun
    assert done.embeddings.known == len(texts) and np.isfinite(done.embeddings.rows(rows[:100])).all()
    return seconds, waiting.seconds()
