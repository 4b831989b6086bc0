"""Fine-tunes a language model to write the question of a passage; the loss is that of the question's tokens alone.

Shape suffix: B examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.core.arrays import chunks
from stillhouse.core.context import Context
from stillhouse.core.curves import CurveRow, Watch
from stillhouse.core.errors import InputError
from stillhouse.corpus.schemas import ADDED, SOURCE
from stillhouse.corpus.store import Corpus
from stillhouse.models.pair_scores import PairTexts
from stillhouse.models.text_generator import TextGenerator
from stillhouse.training.batches import epoch_batches, length_buckets, steps_for
from stillhouse.training.loop import train
from stillhouse.training.low_rank import low_rank
from stillhouse.training.settings import GeneratorConfig

WINDOW = 8
"""Steps whose examples are sorted by length together."""
DEV_PAIRS = 100
"""The held-out loss is measured on at most so many."""


def fit_generator(
    generator: TextGenerator, corpus: Corpus, config: GeneratorConfig, context: Context
) -> tuple[list[CurveRow], Mapping[str, int]]:
    """Train `generator` in place on the train pairs; returns its curves and the number of pairs of each split.

    Dev pairs choose the step to keep. Raises `InputError` for a corpus without labelled pairs in train and dev.
    """
    pairs = {
        split: judged_pairs(generator, corpus, split, most, config.seed)
        for split, most in (("train", config.max_pairs), ("dev", DEV_PAIRS))
    }
    device, count = context.torch_device(), len(pairs["train"])
    steps = steps_for(count, config.batch_size, config.epochs, config.max_steps)
    drawn = epoch_batches(count, config.batch_size, config.seed)
    batch = length_buckets(drawn, pairs["train"].ids.lengths(), steps, WINDOW, config.seed)
    order = np.argsort(pairs["dev"].ids.lengths(), kind="stable")

    def tokens(split: str, number_B: NDArray[np.int64]) -> Tensor:
        return -generator.token_log_likelihoods(*pairs[split].batch(number_B, device))[0]

    def heldout_losses() -> Iterator[tuple[int, Tensor]]:
        for part in chunks(len(order), config.batch_size):
            losses = tokens("dev", order[part]).double()
            yield len(losses), losses.mean()

    with low_rank(generator, config.lora_rank):
        rows = train(
            generator,
            lambda step: tokens("train", batch(step)).mean(),
            heldout_losses,
            steps,
            config,
            context,
            Watch(patience=config.patience),
        )
    return rows, {split: len(of) for split, of in pairs.items()}


def judged_pairs(generator: TextGenerator, corpus: Corpus, split: str, most: int | None, seed: int) -> PairTexts:
    """The pairs of a labelled question and a passage that answers it, at most `most` drawn from the seed."""
    asked = corpus.queries[corpus.queries["origin"].isin((SOURCE, ADDED))]
    found = corpus.relevant(split)[["query_id", "passage_id"]].merge(asked, on="query_id")
    if not len(found):
        raise InputError(f"{corpus.folder} has no labelled {split} question; give a corpus that has some")
    if most and len(found) > most:
        found = found.iloc[np.sort(np.random.default_rng(seed).permutation(len(found))[:most])]
    rows = corpus.rows_of(found["passage_id"])
    unique, place = np.unique(rows, return_inverse=True)
    passages = [
        passage
        for block in corpus.passage_blocks("title", "text", among=unique)
        for passage in zip(block["title"], block["text"])
    ]
    prompts = generator.prompts(passages)
    return generator.answered([prompts[number] for number in place], list(found["text"]))
