"""The parts of the suite that train and use models: pre-training, fine-tuning, encoding, teacher scores, the sample."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from suite_parts import Job, Part, Row, Side, Timed

STEPS = 4
"""Steps of a training; the first is not counted, and the median of the others is shown."""
LAYERS, WIDTH, LENGTH = 6, 384, 128
PAIR_LENGTH, PAIR_BATCH = 192, 32
RECIPES = {
    "micro": ["--recipe", "micro"],
    "sample, few steps": ["--recipe", "sample", "--small"],
    "sample": ["--recipe", "sample"],
}


def pretraining(objective: str) -> Side:
    def side(job: Job) -> Timed:
        import pretraining_speed as speed

        from stillhouse.context import Context

        context = Context(job.folder, quiet=True)
        size, clock = speed.Size(LAYERS, WIDTH, job.size, LENGTH), speed.Clock(context.torch_device())
        [entry] = [each for each in speed.open_entries([objective], size, clock) if each.name == objective]
        return lambda: {"seconds": float(speed.measure(entry, size, STEPS, 0, context, clock).sum())}

    return side


def trainer(job: Job) -> Timed:
    """The same encoder, passages and share of masked tokens, by transformers' Trainer and its collator."""
    import numpy as np
    import pretraining_speed as speed
    from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments
    from transformers.utils import logging

    from stillhouse.context import Context
    from stillhouse.training.precision import has_bf16

    logging.set_verbosity_error()
    clock = speed.Clock(Context(job.folder, quiet=True).torch_device())
    size = speed.Size(LAYERS, WIDTH, job.size, LENGTH)
    [entry] = speed.open_entries(["mlm"], size, clock)
    batch = speed.random_passages(speed.BATCHES, max(size.batch, 4), size.length).batch(
        np.arange(STEPS * size.batch), size.length
    )
    examples = [{"input_ids": ids[mask].tolist()} for ids, mask in zip(batch.ids, batch.attention)]
    collator = DataCollatorForLanguageModeling(pretrained_tokenizer(), mlm_probability=entry.config.encoder_mask)

    def run() -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=job.folder) as work:
            settings = TrainingArguments(
                output_dir=work,
                max_steps=STEPS,
                per_device_train_batch_size=size.batch,
                learning_rate=1e-6,
                bf16=has_bf16(clock.device),
                **QUIET,
            )
            timed = step_times(clock)
            Trainer(entry.module.model, settings, collator, examples, callbacks=[timed]).train()
        return {"seconds": float(np.median(np.diff(timed.times)))}

    return run


QUIET: dict[str, Any] = {
    "save_strategy": "no",
    "logging_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
}


def step_times(clock: Callable[[], float]) -> Any:
    from transformers import TrainerCallback

    class StepTimes(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.times: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.times.append(clock())

    return StepTimes()


def pretrained_tokenizer() -> Any:
    from suite_corpus import tokenizer

    return tokenizer()


def prepare_training(job: Job) -> None:
    import training_step

    training_step.prepare_examples(job.folder, job.data / "squad-passages")
    cut = {"query_length": LENGTH, "passage_length": LENGTH}
    training_step.step("fetch-model", {}, {"encoder": job.folder / "model"}, model=training_step.MODEL, **cut)


def training(name: str) -> Side:
    def side(job: Job) -> Timed:
        import numpy as np
        import training_step

        from stillhouse.context import Context

        clock = training_step.Clock(Context(job.folder, quiet=True).torch_device())
        examples = training_step.read_examples(job.folder, job.size, STEPS)
        lengths = training_step.Lengths(LENGTH, False)
        made = getattr(training_step, name)(job.folder / "model", examples, lengths, "fp32", STEPS, clock, job.folder)
        return lambda: {"seconds": float(np.median(made.run(0))), "value": made.loss}

    return side


def prepare_encoding(job: Job) -> None:
    import encoding

    encoding.fetch(encoding.MODEL, 0, "own", 32, encoding.LENGTH, job.folder / "model")
    texts = encoding.read_texts(job.data / "squad-passages" / "corpus.jsonl", job.size)
    (job.folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")


def encode(ours: bool) -> Side:
    def side(job: Job) -> Timed:
        import encoding

        from stillhouse.retrieval.settings import InferenceConfig

        texts = json.loads((job.folder / "texts.json").read_text(encoding="utf-8"))
        model = job.folder / "model"
        work = (
            encoding.ours(model, "fp32", InferenceConfig().batch_tokens)
            if ours
            else encoding.theirs(model, "fp32", encoding.PEER_BATCHES[0])
        )
        return lambda: {"value": float(work(texts).std())}

    return side


def prepare_scoring(job: Job) -> None:
    """A cross-encoder with a random scoring layer, and pairs of questions and passages of squad-passages."""
    import encoding
    import numpy as np
    import torch

    from stillhouse.retrieval.cross_encoder import CrossEncoder
    from stillhouse.retrieval.source import locate

    torch.manual_seed(0)
    CrossEncoder.start(Path(locate(encoding.MODEL)), PAIR_LENGTH).save(job.folder / "reranker")
    passages = encoding.read_texts(job.data / "squad-passages" / "corpus.jsonl", 10**9)
    with (job.data / "squad-passages" / "queries.jsonl").open(encoding="utf-8") as file:
        queries = [json.loads(line)["text"] for line in file]
    rng = np.random.default_rng(0)
    pairs = [
        (queries[int(query)], passages[int(passage)])
        for query, passage in zip(rng.integers(len(queries), size=job.size), rng.integers(len(passages), size=job.size))
    ]
    (job.folder / "pairs.json").write_text(json.dumps(pairs), encoding="utf-8")


def read_pairs(job: Job) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads((job.folder / "pairs.json").read_text(encoding="utf-8"))]


def score(job: Job) -> Timed:
    import numpy as np

    from stillhouse.context import Context
    from stillhouse.retrieval.cross_encoder import CrossEncoder, score_pairs
    from stillhouse.retrieval.settings import InferenceConfig

    queries, passages = (np.array(column, dtype=object) for column in zip(*read_pairs(job)))
    model, config = CrossEncoder.load(job.folder / "reranker"), InferenceConfig(precision="fp32")
    row_P = np.arange(len(queries))

    def run() -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=job.folder) as work:
            context = Context(Path(work), quiet=True)
            scores = score_pairs(model, queries, passages, row_P, row_P, context, "scoring", config)
        return {"value": float(scores.std())}

    return run


def predict(job: Job) -> Timed:
    from sentence_transformers import CrossEncoder

    pairs = read_pairs(job)
    model = CrossEncoder(str(job.folder / "reranker"), max_length=PAIR_LENGTH)
    return lambda: {"value": float(model.predict(pairs, batch_size=PAIR_BATCH, show_progress_bar=False).std())}


def pipeline(job: Job) -> Timed:
    from stillhouse.cli import main

    def run() -> dict[str, float]:
        code = main(["run", *RECIPES[job.size], "--folder", str(job.folder / "run"), "--quiet"])
        assert not code, f"the pipeline ended with {code}"
        folder = job.folder / "run" / "artifacts" / "evaluate" / "evaluation"
        return {"value": json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["distilled"]["RR@10"]}

    return run


SQUAD = ("squad-passages",)
PARTS = (
    Part(
        "pretraining",
        f"A step of the project's training loop over random passages of up to {LENGTH} tokens; an encoder of {LAYERS} "
        f"layers × {WIDTH}. transformers' Trainer computes the vocabulary's scores at every token, here those at "
        "masked ones alone.",
        "passages",
        (4, 8, 16),
        (
            Row("`mlm`", pretraining("mlm"), {"transformers": trainer}),
            *(Row(f"`{name}`", pretraining(name)) for name in ("simlm", "bow", "cdmae")),
        ),
    ),
    Part(
        "training",
        f"A step over queries of squad-passages, each with a positive and a negative, cut at {LENGTH} tokens, fp32: "
        "the same loss, batches and order. *Value* is the loss of the first batch.",
        "queries",
        (4, 8, 16),
        (Row("contrastive", training("ours"), {"sentence_transformers": training("theirs")}),),
        prepare_training,
        SQUAD,
    ),
    Part(
        "encoding",
        "Passages of squad-passages, all-MiniLM-L6-v2, fp32, cut at 256 tokens. Here digests of the texts are computed "
        "and the vectors are written to the disk. *Value* is the spread of all numbers of the vectors.",
        "passages",
        (128, 512, 2048),
        (Row("natural lengths", encode(True), {"sentence_transformers": encode(False)}),),
        prepare_encoding,
        SQUAD,
    ),
    Part(
        "scoring",
        f"Pairs of question and passage through a cross-encoder of all-MiniLM-L6-v2's size, fp32, cut at {PAIR_LENGTH} "
        "tokens. Here every batch is kept on the disk for a run after a kill. *Value* is the spread of the scores.",
        "pairs",
        (64, 256, 1024),
        (Row("teacher scores", score, {"sentence_transformers": predict}),),
        prepare_scoring,
        SQUAD,
    ),
    Part(
        "pipeline",
        "`stillhouse run`: every stage in one process. *Value* is RR@10 of the distilled retriever, on few questions.",
        "",
        tuple(RECIPES),
        (Row("all stages", pipeline),),
    ),
)
