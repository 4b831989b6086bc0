"""Step `tokenize`: tokenizes every passage once, into flat arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.engine.ray_engine import open_engine
from stillhouse.pipeline.steps.spec import CORPUS, GATE, TOKENS, Paths, Port, Report, Step

ROWS = 1 << 17
"""Passages that one process of an engine tokenizes at a time, a row group: half a minute on one CPU core."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `tokenize`."""

    max_length: int | None = setting(
        None,
        "tokens to keep per passage, including [CLS] and [SEP]; null = the passage_length of the tokenizer's model "
        "(144 in SimLM Table 11)",
        minimum=3,
    )
    language: str = setting("en", "ISO 639-1 code of the passages' language, for splitting sentences")


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.corpus.store import Corpus
    from stillhouse.models.encoder_settings import read_settings
    from stillhouse.models.tokenizer_files import load_tokenizer
    from stillhouse.pretraining.token_files import write_structure, write_tokens
    from stillhouse.pretraining.token_parts import TEXTS_AT_ONCE, TokenSettings, blocks_of, copied, write_token_parts
    from stillhouse.pretraining.tokens import vocabulary_digest

    corpus = Corpus.open(inputs["corpus"])
    if not corpus.passage_count:
        raise InputError(f"{inputs['corpus']} has no passages; `stillhouse ingest` a source that has some")
    tokenizer = load_tokenizer(inputs["tokenizer"])
    max_length = config.max_length or read_settings(inputs["tokenizer"]).passage_length
    settings = TokenSettings(inputs["corpus"], inputs["tokenizer"], max_length, config.language)
    with open_engine(context.engine) as engine:
        if engine:
            context.log(f"[tokenize] {engine.sentence}")
            settings = copied(settings, context.work) if engine.elsewhere else settings
            counts = write_token_parts(
                outputs["tokens"],
                settings,
                context.work,
                engine.each,
                ROWS,
                lambda items, total: context.progress(items, "tokenizing", total, "part"),
            )
        else:
            total = math.ceil(corpus.passage_count / TEXTS_AT_ONCE)
            bar = context.progress(blocks_of(corpus), "tokenizing", unit="block", total=total)
            counts = write_tokens(
                outputs["tokens"], bar, tokenizer, max_length, config.language, corpus.titles, corpus.not_prose.keys()
            )
    structure = write_structure(outputs["tokens"], corpus)
    facts = counts | structure | {"vocabulary": len(tokenizer), "tokenizer": vocabulary_digest(tokenizer)}
    summary = f"{counts['passages']} passages, {counts['tokens']} tokens, {counts['truncated']} passages cut"
    return Report(summary, metrics={name: float(count) for name, count in counts.items()}, facts=facts)


STEP = Step(
    "tokenize",
    "tokenizes every passage once, into flat arrays",
    Config,
    inputs=(CORPUS, Port("tokenizer", "the model folder with the tokenizer", kind="model"), GATE),
    outputs=(TOKENS,),
    run=run,
    divided=True,
)
