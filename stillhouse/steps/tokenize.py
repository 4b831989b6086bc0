"""Step `tokenize`: cuts every passage into tokens once, as flat arrays."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.errors import InputError
from stillhouse.steps.spec import Paths, Port, Report, Step

TEXTS_AT_ONCE = 2048


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `tokenize`."""

    max_length: int = setting(
        144, "tokens of a passage that are kept, [CLS] and [SEP] included (001 Table 11)", minimum=3
    )


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from transformers import AutoTokenizer

    from stillhouse.corpus.store import Corpus, passage_texts
    from stillhouse.pretraining.tokens import cut, join, vocabulary_digest

    texts = passage_texts(Corpus.open(inputs["corpus"]))
    if not texts:
        raise InputError(f"{inputs['corpus']} has no passages; `stillhouse ingest` a source that has some")
    tokenizer = AutoTokenizer.from_pretrained(inputs["tokenizer"], local_files_only=True)
    starts = range(0, len(texts), TEXTS_AT_ONCE)
    bar = context.progress(starts, "tokenizing", unit=f"{TEXTS_AT_ONCE} passages")
    tokens = join(cut(tokenizer, texts[start : start + TEXTS_AT_ONCE], config.max_length) for start in bar)
    tokens.save(outputs["tokens"])
    counts = {"passages": len(texts), "tokens": len(tokens.ids), "truncated": tokens.truncated}
    facts = counts | {"vocabulary": len(tokenizer), "tokenizer": vocabulary_digest(tokenizer)}
    summary = f"{len(texts)} passages, {len(tokens.ids)} tokens, {tokens.truncated} passages cut"
    return Report(summary, metrics={name: float(count) for name, count in counts.items()}, facts=facts)


STEP = Step(
    "tokenize",
    "cuts every passage into tokens once, as flat arrays",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("tokenizer", "a model folder whose tokenizer is used", kind="model"),
        Port("validation", "the verdict that lets the run go on", optional=True),
    ),
    outputs=(Port("tokens", "the token arrays"),),
    run=run,
)
