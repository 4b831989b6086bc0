"""Memory of a training step of the pair tasks, by batch size and by texts encoded at once; writes pair_memory.md.

    python benchmarks/pair_memory.py

Each line is a step of the real loss in a process of its own: one batch, forward and backward. The model is a small
BERT of two layers of width 128 with random weights; queries have 24 tokens, passages about 60.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from machine import machine, memory_mib
from notes import write_page
from own_process import measure, run_alone

CASES = ((2048, None, False), (2048, 64, False), (2048, 64, True), (8192, 64, True))
"""Pairs of a batch, `mini_batch_size` (None: queries and passages are a part each), and `gradient_cache`."""
LENGTH, QUERY, WIDTH = 64, 24, 128


def main(arguments: Sequence[str]) -> int:
    if arguments:
        print(json.dumps(step(*json.loads(arguments[0]))))
        return 0
    lines = [
        "# Memory of a step of the pair tasks",
        "",
        "Command: `OMP_NUM_THREADS=1 python benchmarks/pair_memory.py`.",
        "",
        machine("torch", "transformers"),
        "",
        f"The model is a BERT of two layers of width {WIDTH} with random weights, in fp32, without padding. Queries",
        f"have at most {QUERY} tokens, passages 58 to {LENGTH}. A step is one batch, forward and backward. Memory is",
        "what the step adds to the memory that only the process can free; it includes the gradients.",
        "",
        "| pairs | `mini_batch_size` | `gradient_cache` | memory of the step | processor time |",
        "|---|---|---|---|---|",
    ]
    for pairs, at_once, cached in CASES:
        found = run_alone(Path(__file__), [json.dumps([pairs, at_once, cached])])
        memory = f"{found['own'] - found['before']:,.0f} MiB"
        settings = f"{json.dumps(at_once)} | {json.dumps(cached)}"
        lines.append(f"| {pairs:,} | {settings} | {memory} | {found['processor']:.0f} s |")
    write_page(Path(__file__).with_suffix(".md"), lines)
    return 0


def step(pairs: int, mini_batch_size: int | None, gradient_cache: bool) -> dict[str, Any]:
    """What one step took, and what the process had before it."""
    import numpy as np
    import torch
    from random_passages import SPECIALS, VOCABULARY, random_passages
    from transformers import BertConfig, BertForMaskedLM

    from stillhouse.acceleration.unpadded import without_padding
    from stillhouse.pretraining.pairs.model import PairPretraining
    from stillhouse.pretraining.pairs.pair_loss import PairLoss
    from stillhouse.pretraining.pairs.task import open_pairs
    from stillhouse.pretraining.settings import PretrainingConfig

    config = PretrainingConfig(
        objective="ict",
        query_length=QUERY,
        passage_length=LENGTH,
        max_length=LENGTH,
        mini_batch_size=mini_batch_size,
        gradient_cache=gradient_cache,
    )
    cache = random_passages(2, pairs, LENGTH)
    maker = open_pairs(
        cache, ("ict",), config, heldout_fraction=0.1, max_eval_samples=64, seed=0, device=torch.device("cpu")
    )
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 4 * WIDTH}
    towers = PairPretraining(BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, **sizes)), "cls", config, SPECIALS)
    loss = PairLoss(towers, maker, config, np.arange(0), torch.device("cpu"))
    drawn = loss.draw(maker.training[:pairs], 0)
    before = memory_mib("RssAnon")

    def train() -> None:
        with without_padding(towers.train()):
            for part in loss.training(drawn, 0):
                part.backward()  # type: ignore[no-untyped-call]

    return measure(train) | {"before": before}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
