"""Runs a benchmark, which writes its page.

python -m benchmarks NAME [its flags]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

BENCHMARKS = {
    "quality": ("is the result better than BM25, its base model and sentence-transformers?", "6 hours"),
    "no_labels": ("what a run without labels gives on ten corpora, beside sentence-transformers", "6 hours"),
    "languages": ("BM25, a base model and both in five languages", "10 minutes"),
    "serving": ("the search service beside sentence-transformers and faiss behind FastAPI", "2 hours"),
    "encoding": ("encoding passages, beside sentence-transformers", "20 minutes"),
    "training": ("a training step of a retriever, beside sentence-transformers' trainer", "30 minutes"),
    "objectives": ("which pre-training helps, and how fast each objective trains", "6 hours"),
    "counting": ("counting n-grams beside other libraries, and what masking costs", "15 minutes"),
    "mining": ("mining hard negatives, beside sentence-transformers", "20 minutes"),
    "search": ("the kinds of index at a million passages", "30 minutes"),
    "releases": ("new queries on an old index, release after release", "15 minutes"),
    "scale": ("ten million passages through the steps that need no model", "30 minutes"),
    "gpu": ("on a GPU: correctness, pre-training, encoding, search, training steps, quality", "15 minutes"),
}
"""What each measures, and roughly how long it takes with its defaults, on two free cores or one GPU."""


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        for name, (measures, takes) in BENCHMARKS.items():
            print(f"  {name:<10}  {measures}; about {takes}")
        print("\n`python -m benchmarks NAME --help` says more about one.")
        return 0
    name, *given = arguments
    if name not in BENCHMARKS:
        print(f"no benchmark is called {name}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    status: int = import_module(f"benchmarks.{name}").main(given)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
