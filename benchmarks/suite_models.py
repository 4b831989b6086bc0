"""The parts of the suite that use models, and all together: encoding, teacher scores, the whole pipeline."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from suite_parts import Job, Part, Row, Side, Timed
from waiting import Waiting, of_encoding, of_reranker

RECIPES = Path(__file__).resolve().parents[1] / "stillhouse" / "recipes"

PAIR_LENGTH, PAIR_BATCH = 192, 32
ARTICLES = (11, 22, 44)
"""Of the built-in sample, which has 44."""
HEAD_EPOCHS = 4
"""A head that was trained for less knows no more than how frequent tokens are, and is refused."""


def prepare_encoding(job: Job) -> None:
    import encoding

    encoding.fetch(encoding.MODEL, None, "cls", 32, encoding.LENGTH, job.folder / "model")
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
        waiting = Waiting()

        def run() -> dict[str, float]:
            started = time.perf_counter()
            with waiting.of(*(of_encoding() if ours else ())):
                value = float(work(texts).std())
            return {"value": value} | share(waiting, started, ours)

        return run

    return side


def share(waiting: Waiting, started: float, ours: bool = True) -> dict[str, float]:
    """The share of the time since then that was a wait for data, on our side."""
    return {"waiting": waiting.seconds() / (time.perf_counter() - started)} if ours else {}


def prepare_scoring(job: Job) -> None:
    """A cross-encoder with a random scoring layer, and pairs of questions and passages of squad-passages."""
    import encoding
    import numpy as np
    import torch

    from stillhouse.retrieval.models.cross_encoder import CrossEncoder
    from stillhouse.retrieval.models.model_place import locate

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
    from stillhouse.retrieval.models.cross_encoder import CrossEncoder
    from stillhouse.retrieval.models.pair_scores import score_pairs
    from stillhouse.retrieval.settings import InferenceConfig

    queries, passages = (np.array(column, dtype=object) for column in zip(*read_pairs(job)))
    model, config = CrossEncoder.load(job.folder / "reranker"), InferenceConfig(precision="fp32")
    row_P, waiting = np.arange(len(queries)), Waiting()

    def run() -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=job.folder) as work:
            context, started = Context(Path(work), quiet=True), time.perf_counter()
            with waiting.of(*of_reranker()):
                scores = score_pairs(model, queries, passages, row_P, row_P, context, "scoring", config)
            return {"value": float(scores.std())} | share(waiting, started)

    return run


def predict(job: Job) -> Timed:
    from sentence_transformers import CrossEncoder

    pairs = read_pairs(job)
    model = CrossEncoder(str(job.folder / "reranker"), max_length=PAIR_LENGTH)
    return lambda: {"value": float(model.predict(pairs, batch_size=PAIR_BATCH, show_progress_bar=False).std())}


def prepare_pipeline(job: Job) -> None:
    """The tests' recipe on this many articles, with half an epoch of every training in the place of a few steps."""
    import yaml

    recipe = yaml.safe_load((RECIPES / "micro.yaml").read_text(encoding="utf-8"))
    recipe["ingest"]["max_articles"] = job.size
    for name, settings in recipe.items():
        if "max_steps" in settings:
            settings |= {"max_steps": None, "epochs": HEAD_EPOCHS if name == "lm_head" else 0.5}
    (job.folder / "params.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")


def pipeline(job: Job) -> Timed:
    from stillhouse.cli import main

    def run() -> dict[str, float]:
        code = main(
            ["run", "--params", str(job.folder / "params.yaml"), "--folder", str(job.folder / "run"), "--quiet"]
        )
        assert not code, f"the pipeline ended with {code}"
        folder = job.folder / "run" / "artifacts" / "evaluate" / "evaluation"
        return {"value": json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["distilled"]["RR@10"]}

    return run


SQUAD = ("squad-passages",)
PARTS = (
    Part(
        "encoding",
        "Encodes passages of squad-passages, cut at 256 tokens, with all-MiniLM-L6-v2, [CLS] pooling, in fp32. Our "
        "side also computes digests of the texts and writes the vectors to disk. *Value* is the spread of the vectors' "
        "numbers.",
        "passages",
        (64, 256, 1024),
        (Row("natural lengths", encode(True), {"sentence_transformers": encode(False)}),),
        prepare_encoding,
        SQUAD,
    ),
    Part(
        "scoring",
        f"Scores pairs of question and passage, cut at {PAIR_LENGTH} tokens, with a cross-encoder of "
        "all-MiniLM-L6-v2's size in fp32. Our side writes every batch to disk, so that a killed run can resume. "
        "*Value* is the spread of the scores.",
        "pairs",
        (32, 128, 512),
        (Row("teacher scores", score, {"sentence_transformers": predict}),),
        prepare_scoring,
        SQUAD,
    ),
    Part(
        "pipeline",
        "`stillhouse run` runs every stage in one process, with the tests' recipe (two layers, texts of 32 tokens) and "
        "half an epoch in every training. *Value* is RR@10 of the distilled retriever, on few questions.",
        "articles",
        ARTICLES,
        (Row("all stages", pipeline),),
        prepare_pipeline,
    ),
)
