"""What `scale.py models` measures: the rates of the steps that need a model or its tokenizer, on small real data.

The rates do not depend on the number of passages, so a few are enough: tokens per second and core for tokenizing, and
operations of an encoder's matrix products per second and core for encoding, teacher scoring and training a retriever,
with [CLS] pooling. Operations count whole layers, although the last one computes less. A task runs in a process of its
own and reports only the seconds of the work, because loading the libraries would take most of the time.

Shapes: P pairs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scale_on_paper import passage_operations
from scale_tasks import run_step, wiki_intro

MODEL = {"layers": 6, "width": 384}
"""all-MiniLM-L6-v2."""
TOKENIZED, TOKENIZED_LENGTH = 20_000, 144
ENCODED = 256
PAIRS, PAIR_LENGTH = 192, 192
STEPS, BATCH, NEGATIVES, LENGTH = 4, 8, 1, 128
"""Of the training, whose first step is not counted."""

Found = dict[str, Any]


def squad(data: Path) -> Path:
    return data / "squad-passages"


def tokenize(folder: Path, data: Path) -> Found:
    """The step `tokenize` on the first passages of `wiki-intro`; run twice, for the first loads the libraries."""
    import counting

    from stillhouse.retrieval.models.model_place import locate

    texts = [text for text, _ in zip(counting.passages(wiki_intro(data)), range(TOKENIZED))]
    for name, some in (("few", texts[:100]), ("all", texts)):
        lines = (json.dumps({"id": f"p{row}", "text": text}) + "\n" for row, text in enumerate(some))
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        corpus = folder / f"corpus-{name}"
        run_step("ingest", {}, {"corpus": corpus}, source=str(folder / f"{name}.jsonl"), queries="source")
        inputs, outputs = {"corpus": corpus, "tokenizer": Path(locate(counting.MODEL))}, {"tokens": folder / name}
        taken = timed(lambda i=inputs, o=outputs: run_step("tokenize", i, o, max_length=TOKENIZED_LENGTH))
    tokens = int(np.load(folder / "all" / "offsets.npy", mmap_mode="r")[-1])
    return taken | {"tokens": tokens, "of": f"{len(texts):,} passages"}


def encode(folder: Path, data: Path) -> Found:
    """Vectors of passages of squad-passages."""
    import suite_models
    from suite_parts import Job

    from stillhouse.retrieval.models.encoder import BiEncoder

    job = Job(ENCODED, folder, data)
    suite_models.prepare_encoding(job)
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    lengths_N = BiEncoder.load(folder / "model").passages(texts).lengths()
    taken = timed(suite_models.encode(True)(job))
    return taken | {"operations": operations(lengths_N), "of": f"{len(texts)} passages"}


def score(folder: Path, data: Path) -> Found:
    """Teacher scores of random pairs of a question and a passage of squad-passages."""
    import suite_models
    from suite_parts import Job

    from stillhouse.retrieval.models.cross_encoder import CrossEncoder

    job = Job(PAIRS, folder, data)
    suite_models.prepare_scoring(job)
    queries, passages = zip(*suite_models.read_pairs(job))
    lengths_P = CrossEncoder.load(folder / "reranker").pairs(queries, passages).ids.lengths()
    taken = timed(suite_models.score(job))
    return taken | {"operations": operations(lengths_P), "of": f"{PAIRS} pairs"}


def train(folder: Path, data: Path) -> Found:
    """Steps of a retriever's training over questions of squad-passages, forward and twice as much backward."""
    import retriever_sides
    import suite_training
    import training_examples
    from clock import Clock
    from suite_parts import Job
    from training_sides import Setting

    from stillhouse.context import Context
    from stillhouse.retrieval.models.encoder import BiEncoder

    suite_training.prepare_training(Job(BATCH, folder, data), NEGATIVES)
    examples = training_examples.read_examples(folder, BATCH, STEPS, NEGATIVES)
    clock = Clock(Context(folder, quiet=True).torch_device())
    setting = Setting(folder / "model", "fp32", STEPS, clock, folder)
    encoder, texts = BiEncoder.load(setting.model), np.array(examples.texts(), dtype=object)
    asked, counted = examples.sampler().texts, np.concatenate(examples.batches[1:])
    lengths = [encoder.queries(list(asked[counted])).lengths()]
    lengths.append(encoder.passages(list(texts[examples.rows(counted).reshape(-1)])).lengths())
    side = retriever_sides.ours(setting, examples, retriever_sides.Lengths(LENGTH, False))
    busy: list[float] = []
    seconds = sum(side.run(0, lambda: busy.append(time.process_time())))
    taken = {"seconds": seconds, "processor": busy[-1] - busy[2]}
    done = 3 * operations(np.concatenate(lengths))
    return taken | {"operations": done, "of": f"{STEPS - 1} steps of {BATCH} queries"}


def timed(work: Callable[[], object]) -> dict[str, float]:
    started, busy = time.perf_counter(), time.process_time()
    work()
    return {"seconds": time.perf_counter() - started, "processor": time.process_time() - busy}


def operations(lengths: Iterable[int]) -> float:
    """Of a forward pass of the model over texts of this many tokens each, without padding."""
    return sum(passage_operations(MODEL, int(length)) for length in lengths)


TASKS: Mapping[str, tuple[Callable[[Path, Path], Found], Callable[[Path], Path], str]] = {
    "tokenize": (tokenize, wiki_intro, "tokens"),
    "encode": (encode, squad, "operations"),
    "score": (score, squad, "operations"),
    "train": (train, squad, "operations"),
}
"""What measures a rate, where its data set lies, and what the rate is of."""


def rates(found: Mapping[str, Found], processor: str) -> dict[str, dict[str, Any]]:
    """The rates of what was measured, each with its unit and where it comes from."""
    return {
        task: {
            "value": float(f"{row[TASKS[task][2]] / row['processor']:.4g}"),
            "unit": f"{TASKS[task][2]} a second of a core",
            "source": f"`models`: `{task}`, {row['of']}, {processor}",
        }
        for task, row in found.items()
    }
