"""The parts of the suite that need no model: ingest, tokenizing, counting, masking."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from suite_parts import Job, Part, Row, Side, Timed

NLTK = "nltk FreqDist over everygrams"
LENGTH = 144
"""Tokens of a passage that are kept, as `tokenize` has it."""


def write_sources(job: Job) -> None:
    import pyarrow.parquet as pq
    from pyarrow.json import read_json
    from word_passages import write_jsonl

    write_jsonl(job.folder / "passages.jsonl", job.size)
    pq.write_table(read_json(job.folder / "passages.jsonl"), job.folder / "passages.parquet")


def ingest(suffix: str) -> Side:
    def side(job: Job) -> Timed:
        from stillhouse.config import build
        from stillhouse.steps.execute import execute
        from stillhouse.steps.registry import find_step

        step = find_step("ingest")
        config = build(step.config, {"source": str(job.folder / f"passages.{suffix}"), "queries": "source"}, "ingest")
        return lambda: {"value": execute(step, config, {}, {"corpus": job.folder / "corpus"}).facts["passages"]}

    return side


def load_dataset(builder: str, suffix: str) -> Side:
    def side(job: Job) -> Timed:
        import datasets

        datasets.disable_progress_bars()
        cache = job.folder / "datasets"

        def load() -> None:
            shutil.rmtree(cache, ignore_errors=True)
            files = str(job.folder / f"passages.{suffix}")
            datasets.load_dataset(builder, data_files=files, cache_dir=str(cache), split="train")

        return load

    return side


def write_texts(job: Job) -> None:
    """The first passages of `wiki-intro`, title and text."""
    import counting

    texts = [text for text, _ in zip(counting.passages(job.data / "wiki-intro" / "corpus.jsonl.gz"), range(job.size))]
    (job.folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")


def read_texts(job: Job) -> list[str]:
    texts: list[str] = json.loads((job.folder / "texts.json").read_text(encoding="utf-8"))
    return texts


def tokenizer() -> Any:
    import counting
    from transformers import AutoTokenizer

    from stillhouse.retrieval.models.model_place import locate

    return AutoTokenizer.from_pretrained(locate(counting.MODEL), local_files_only=True, trust_remote_code=False)


def tokenize(job: Job) -> Timed:
    import pandas as pd

    from stillhouse.pretraining.token_files import write_tokens
    from stillhouse.steps.tokenize import TEXTS_AT_ONCE

    texts, cut, into = read_texts(job), tokenizer(), fresh(job.folder / "tokens")
    table = pd.DataFrame({"title": [""] * len(texts), "text": texts})
    blocks = [table.iloc[start : start + TEXTS_AT_ONCE] for start in range(0, len(table), TEXTS_AT_ONCE)]

    def write() -> dict[str, int]:
        found = write_tokens(into, blocks, cut, LENGTH, "en")
        return {"value": found["tokens"] + 2 * found["passages"]}

    return write


def map_tokens(job: Job) -> Timed:
    import datasets

    datasets.disable_progress_bars()
    texts, cut = datasets.Dataset.from_dict({"text": read_texts(job)}), tokenizer()
    into = job.folder / "tokens.arrow"

    def write() -> dict[str, int]:
        found = texts.map(
            lambda rows: {"ids": cut(rows["text"], truncation=True, max_length=LENGTH)["input_ids"]},
            batched=True,
            batch_size=2048,
            remove_columns=["text"],
            cache_file_name=str(into),
            load_from_cache_file=False,
        )
        return {"value": sum(map(len, found["ids"]))}

    return write


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def sample_tokens(job: Job) -> None:
    """Tokens drawn from a trigram model of 2,000 passages of `wiki-intro`."""
    from token_sampler import TokenSampler

    from stillhouse.pretraining.tokens import cut

    write_texts(Job(2000, job.folder, job.data))
    real = cut(tokenizer(), read_texts(job), 1 << 20)
    TokenSampler(real.ids, real.offsets).write(job.folder / "tokens", job.size, 1)


def counted(name: str) -> Side:
    def side(job: Job) -> Timed:
        import counting
        import numpy as np

        ids, offsets = (np.load(job.folder / "tokens" / f"{each}.npy") for each in ("ids", "offsets"))
        if name == NLTK:
            count = counting.peer(NLTK, counting.LONGEST, ids, offsets)
        else:
            count = counting.ours("counting", counting.LONGEST, ids, offsets, job.folder / "counts", 1024)
        return lambda: {"value": sum(count())}

    return side


def masked(objective: str) -> Side:
    def side(job: Job) -> Timed:
        import masking

        cache = masking.open_cache(max(1024, job.size))
        corrupt = masking.corruption(objective, "token", cache, masking.drawn(cache, job.size))
        return lambda: {"seconds": masking.milliseconds(corrupt) / 1000}

    return side


def collated(job: Job) -> Timed:
    """The same share of the same passages masked by transformers' collator, from lists that lie in memory."""
    import masking
    from transformers import DataCollatorForLanguageModeling

    from stillhouse.pretraining.settings import PretrainingConfig

    cache = masking.open_cache(max(1024, job.size))
    ids_BL = cache.batch(masking.drawn(cache, job.size), masking.LENGTH).ids.tolist()
    share = PretrainingConfig(objective="mlm").encoder_mlm_probability
    collate = DataCollatorForLanguageModeling(tokenizer(), mlm_probability=share)
    return lambda: {"seconds": masking.milliseconds(lambda: collate([{"input_ids": ids} for ids in ids_BL])) / 1000}


PARTS = (
    Part(
        "ingest",
        "Reads passages of 56 random words into a corpus: checks ids and texts, finds repeats, computes digests and "
        "writes Parquet. `datasets` copies the same file into its own Arrow files and checks nothing.",
        "passages",
        (20_000, 100_000, 500_000),
        (
            Row("JSONL", ingest("jsonl"), {"datasets": load_dataset("json", "jsonl")}),
            Row("Parquet", ingest("parquet"), {"datasets": load_dataset("parquet", "parquet")}),
        ),
        write_sources,
    ),
    Part(
        "tokenizing",
        f"Tokenizes passages of `wiki-intro`, cut at {LENGTH} tokens, into flat arrays with word and sentence starts. "
        "`datasets` maps the same tokenizer over them and keeps only the ids. Both tokenizers use all cores.",
        "passages",
        (2000, 8000, 32_000),
        (Row("title and text", tokenize, {"datasets": map_tokens}),),
        write_texts,
        ("wiki-intro",),
    ),
    Part(
        "counting",
        "Counts all n-grams of up to four tokens exactly, reading from disk and writing to disk. The tokens come from "
        "a trigram model of `wiki-intro`. nltk counts lists that are in memory before the clock starts.",
        "tokens",
        (250_000, 1_000_000, 4_000_000),
        (Row("n ≤ 4", counted("ours"), {"nltk": counted(NLTK)}),),
        sample_tokens,
        ("wiki-intro",),
    ),
    Part(
        "masking",
        "Reads a batch of passages of 150 random tokens, masks it and makes tensors; the median of 40 batches, without "
        "a generator's forward pass. The other side is transformers' collator, for the one objective that it has.",
        "passages",
        (32, 128, 512),
        (
            Row("`mlm`", masked("mlm"), {"transformers": collated}),
            *(Row(f"`{name}`", masked(name)) for name in ("simlm", "bow", "cdmae", "enhanced_decoding")),
        ),
    ),
)
