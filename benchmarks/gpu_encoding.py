"""Encoding passages with an encoder of BERT-base's size, for a GPU: the part `encoding` of `gpu`.

Weights are random, and passages are random words with natural lengths. The script does everything that `stillhouse
encode` does, from texts to vectors on disk. `--layers 1 --width 96 --passages 500` tries it without a GPU.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks import objectives
from benchmarks.clock import Clock, kernel_seconds, matrix_peak
from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import write_page
from benchmarks.waiting import Waiting, of_encoding
from benchmarks.word_passages import word_blocks
from stillhouse.core.context import Context
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.models.acceleration.device import computed_in
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.settings import InferenceConfig
from stillhouse.search.corpus_encoding import encode_passages

LENGTH, ROWS_AT_ONCE = 144, 8192
TARGET = 30_000
"""Passages a second of 70 tokens, BERT-base, bf16."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = command("gpu_encoding", __doc__)
    parser.add_argument("--passages", type=int, default=200_000)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768, help="a multiple of 32")
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[16_384, 65_536, 262_144])
    parser.add_argument("--only-model", type=Path, help="write the encoder to this folder, and measure nothing")
    arguments = parser.parse_args(argv)
    if arguments.only_model:
        random_encoder(arguments.layers, arguments.width, arguments.only_model)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        lines = list(report(arguments, Path(folder)))
    write_page(arguments.page, lines)
    return 0


def report(arguments: argparse.Namespace, folder: Path) -> Iterator[str]:
    encoder = random_encoder(arguments.layers, arguments.width, folder / "model")
    # a word is some three tokens
    texts = list(chain.from_iterable(block for _, block in word_blocks(arguments.passages, 22)))
    tokens = np.concatenate(
        [
            encoder.passages(texts[begin : begin + ROWS_AT_ONCE]).lengths()
            for begin in range(0, len(texts), ROWS_AT_ONCE)
        ]
    )
    # Of the matrix products of a forward pass over each passage, a multiplication and an addition each.
    of_token = 12.0 * arguments.width**2 + 2 * tokens * arguments.width
    operations = float((2 * arguments.layers * tokens * of_token).sum())
    device = Context(folder, quiet=True).torch_device()
    clock, precision = Clock(device), computed_in(InferenceConfig().precision, device)
    peak = matrix_peak(precision, clock)
    yield "# Encoding at BERT-base's size"
    yield ""
    yield "Command: `python -m benchmarks gpu --folder build/gpu --only base encoding`."
    yield ""
    yield machine("torch", "transformers", "numpy")
    yield ""
    about, numbers = f"{arguments.layers} layers of width {arguments.width}", str(precision).removeprefix("torch.")
    yield f"{len(texts):,} passages of {tokens.mean():.0f} tokens on average, cut at {LENGTH}, in"
    yield f"{numbers}. The encoder has {about} with random weights and [CLS] pooling. The time covers everything from"
    yield "texts to vectors on disk. *Share* compares with the fastest matrix product measured here in that precision"
    yield f"({peak / 1e12:.1f} TFLOP/s), as if the last layer were computed whole. *Making* is the share of the time in"
    yield "which the other thread makes batches; the wait for them is shorter. The target is"
    yield f"{TARGET:,} passages of 70 tokens a second."
    yield ""
    yield "| padded tokens a batch | passages/s | tokens/s | share | making |"
    yield "|---|---|---|---|---|"
    measure(
        encoder, texts[:ROWS_AT_ONCE], arguments.batch_tokens[0], folder / "first", clock
    )  # the first is not counted
    for batch_tokens in arguments.batch_tokens:
        seconds, making = measure(encoder, texts, batch_tokens, folder / str(batch_tokens), clock)
        rates = f"{len(texts) / seconds:,.0f} | {tokens.sum() / seconds:,.0f} | {operations / seconds / peak:.0%}"
        yield f"| {batch_tokens:,} | {rates} | {making / seconds:.0%} |"
    again = folder / "profiled"
    busy = kernel_seconds(lambda: measure(encoder, texts, batch_tokens, again, clock), device)
    if busy:
        yield ""
        yield f"With {batch_tokens:,}, kernels run for {busy / seconds:.0%} of the time."


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
