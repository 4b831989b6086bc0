"""The parts of the suite that train: pre-training by objective, the retriever, its distillation, the re-ranker."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

from suite_parts import Job, Part, Row, Side, Timed

STEPS, PRETRAINING_STEPS = 4, 3
"""Steps of a training; the first is not counted, and the median of the others is shown."""
LAYERS, WIDTH, LENGTH = 6, 384, 128
PAIR_LENGTH = 192
NEGATIVES = 3
"""Of a query, where there is a teacher and for the re-ranker; retrievers without one have a single one."""
PAIR_TASKS = ("ict", "bfs", "wlp")


def objectives() -> tuple[str, ...]:
    """Every one that there is, then the pair tasks, which have no language-model head."""
    from stillhouse.pretraining.objectives import NAMES

    return (*NAMES, *PAIR_TASKS)


def pretraining(objective: str) -> Side:
    def side(job: Job) -> Timed:
        import pretraining_speed as speed

        from stillhouse.context import Context

        context = Context(job.folder, quiet=True)
        size, clock = speed.Size(LAYERS, WIDTH, job.size, LENGTH), speed.Clock(context.torch_device())
        [entry] = speed.open_entries([objective], size, clock)

        def run() -> dict[str, float]:
            parts = speed.measure(entry, size, PRETRAINING_STEPS, 0, context, clock)
            return {"seconds": float(parts.sum()), "waiting": float(parts[0] / parts.sum())}

        return run

    return side


def trainer(job: Job) -> Timed:
    """The same encoder, passages and share of masked tokens, by transformers' Trainer and its collator."""
    import numpy as np
    import pretraining_speed as speed
    from suite_corpus import tokenizer
    from training_sides import step_ends
    from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments
    from transformers.utils import logging

    from stillhouse.acceleration.precision import has_bf16
    from stillhouse.context import Context

    logging.set_verbosity_error()
    clock = speed.Clock(Context(job.folder, quiet=True).torch_device())
    size = speed.Size(LAYERS, WIDTH, job.size, LENGTH)
    [entry] = speed.open_entries(["mlm"], size, clock)
    batch = speed.random_passages(speed.BATCHES, max(size.batch, 4), size.length).batch(
        np.arange(PRETRAINING_STEPS * size.batch), size.length
    )
    examples = [{"input_ids": ids[mask].tolist()} for ids, mask in zip(batch.ids, batch.attention)]
    collator = DataCollatorForLanguageModeling(tokenizer(), mlm_probability=entry.config.encoder_mlm_probability)

    def run() -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=job.folder) as work:
            settings = TrainingArguments(
                output_dir=work,
                max_steps=PRETRAINING_STEPS,
                per_device_train_batch_size=size.batch,
                learning_rate=1e-6,
                bf16=has_bf16(clock.device),
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
            )
            timed = step_ends(clock)
            Trainer(entry.module.model, settings, collator, examples, callbacks=[timed]).train()
        return {"seconds": float(np.median(np.diff(timed.times)))}

    return run


def prepare_training(job: Job, count: int = 1) -> None:
    import training_examples as made

    made.prepare_examples(job.folder, job.data / "squad-passages", count)
    cut = {"pooling": "cls", "query_length": LENGTH, "passage_length": LENGTH}
    made.step("fetch-model", {}, {"encoder": job.folder / "model"}, model=made.MODEL, **cut)


def prepare_reranker(job: Job) -> None:
    import reranker_sides

    prepare_training(job, NEGATIVES)
    reranker_sides.start(job.folder / "model", PAIR_LENGTH, job.folder / "reranker")


def trained(make: Callable[[Job, Any, Any], Any], model: str = "model", count: int = 1) -> Side:
    """A side of a training benchmark that `make(job, setting, examples)` gives, measured once."""

    def side(job: Job) -> Timed:
        import numpy as np
        from clock import Clock
        from training_examples import read_examples
        from training_sides import Setting

        from stillhouse.context import Context

        clock = Clock(Context(job.folder, quiet=True).torch_device())
        setting = Setting(job.folder / model, "fp32", STEPS, clock, job.folder)
        made = make(job, setting, read_examples(job.folder, job.size, STEPS, count))

        def run() -> dict[str, float]:
            found = {"seconds": float(np.median(made.run(0))), "value": made.loss}
            return found | ({"waiting": made.waiting[0]} if made.waiting else {})

        return run

    return side


def of_retriever(name: str, _: Job, setting: Any, examples: Any) -> Any:
    import retriever_sides

    return getattr(retriever_sides, name)(setting, examples, retriever_sides.Lengths(LENGTH, False))


def of_distilled(name: str, _: Job, setting: Any, examples: Any) -> Any:
    import retriever_sides
    from training_examples import random_teacher

    lengths = retriever_sides.Lengths(LENGTH, False)
    return getattr(retriever_sides, name)(setting, examples, lengths, random_teacher(examples))


def of_reranker(name: str, _: Job, setting: Any, examples: Any, **how: Any) -> Any:
    import reranker_sides

    return getattr(reranker_sides, name)(setting, examples, **how)


RERANKER = partial(trained, model="reranker", count=NEGATIVES)
SQUAD = ("squad-passages",)
PARTS = (
    Part(
        "pretraining",
        f"A step of the project's training loop over random passages of up to {LENGTH} tokens, with an encoder of "
        f"{LAYERS} layers × {WIDTH}, for every objective and the pair tasks. transformers' Trainer computes the "
        "vocabulary's scores at every token; our loop computes them only at masked tokens.",
        "passages",
        (2, 4, 8),
        tuple(
            Row(f"`{name}`", pretraining(name), {"transformers": trainer} if name == "mlm" else {})
            for name in objectives()
        ),
    ),
    Part(
        "training",
        f"A step over queries of squad-passages, each with a positive and a negative, cut at {LENGTH} tokens, [CLS] "
        "pooling, fp32. Loss, batches and order are the same. *Value* is the loss of the first batch.",
        "queries",
        (4, 8, 16),
        (
            Row(
                "contrastive",
                trained(partial(of_retriever, "ours")),
                {"sentence_transformers": trained(partial(of_retriever, "theirs"))},
            ),
        ),
        prepare_training,
        SQUAD,
    ),
    Part(
        "distillation",
        f"The same with {NEGATIVES} negatives and a teacher's scores: KL divergence and the contrastive loss (SimLM "
        "eq. 5). The other side uses sentence-transformers' own losses, `DistillKLDivLoss` and "
        "`MultipleNegativesRankingLoss`, on vectors computed once; sentence-transformers leaves it to the user to "
        "combine them. Its `MarginMSELoss` is another function. *Value* is the loss of the first batch.",
        "queries",
        (2, 4, 8),
        (
            Row(
                "KL and contrastive",
                trained(partial(of_distilled, "ours"), count=NEGATIVES),
                {"sentence_transformers": trained(partial(of_distilled, "theirs"), count=NEGATIVES)},
            ),
        ),
        partial(prepare_training, count=NEGATIVES),
        SQUAD,
    ),
    Part(
        "reranking",
        f"A step of a cross-encoder of all-MiniLM-L6-v2's size over queries of squad-passages, each with a positive "
        f"and {NEGATIVES} negatives, pairs cut at {PAIR_LENGTH} tokens, fp32. Our side uses the listwise loss (SimLM "
        "eq. 4). The other side uses `ListNetLoss`, either with all pairs of a step at once, as here, or by its "
        "default with as many as there are queries. *Value* is the loss of the first batch.",
        "queries",
        (2, 4, 8),
        (
            Row(
                "listwise",
                RERANKER(partial(of_reranker, "ours")),
                {
                    "sentence_transformers, all at once": RERANKER(partial(of_reranker, "theirs")),
                    "sentence_transformers, by default": RERANKER(partial(of_reranker, "theirs", at_once=False)),
                },
            ),
        ),
        prepare_reranker,
        SQUAD,
    ),
)
