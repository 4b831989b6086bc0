"""Step `label-queries`: gives questions without labels the passage that BM25 and a retriever rank first, where they are
sure, as train queries.

Shape suffixes: Q questions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.settings import InferenceConfig
from stillhouse.pipeline.steps.spec import BM25_INDEX, SEARCHED, Paths, Port, Report, Step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Config(InferenceConfig):
    """Which questions to label, and how confident an answer must be."""

    questions: str | None = setting(
        None,
        "a folder with queries.jsonl, as `stillhouse queries export --all` writes it; null = the unlabelled "
        "questions of the corpus",
        location=True,
    )
    share: float = setting(
        0.7,
        "keep this share of the questions: those with the largest lead of the first passage (or document) over the "
        "second",
        minimum=0,
        maximum=1,
    )
    depth: int = setting(100, "candidates from BM25 and from the retriever", minimum=2)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.corpus.sources.labels import write_qrels, write_queries
    from stillhouse.corpus.store import Corpus
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.search.bm25 import BM25
    from stillhouse.search.documents import documents_of, has_documents
    from stillhouse.search.hybrid import HybridIndex, HybridSearch, unfitted
    from stillhouse.search.reading import lexical_factor
    from stillhouse.search.searcher import best, open_index, query_vectors

    corpus = Corpus.open(inputs["corpus"])
    asked = dict(zip(corpus.unjudged["query_id"], corpus.unjudged["text"]))
    if config.questions:
        asked = read_questions(Path(config.questions).expanduser())
    if not asked:
        raise InputError(
            f"{inputs['corpus']} has no questions without labels; add a queries.jsonl to the source, or name a folder "
            "with one in `questions`"
        )
    index, bm25 = open_index(inputs["index"], corpus), BM25.load(inputs["bm25"])
    texts = list(asked.values())
    encoder = BiEncoder.load(inputs["retriever"])
    vectors_QD = query_vectors(encoder, index, texts, context, config)
    factor = lexical_factor(encoder, inputs["retriever"], index, bm25, corpus, context, config)
    fusion = unfitted("auto", config.depth, index, factor=factor)
    hybrid = HybridSearch(fusion, HybridIndex(bm25, index))
    # Another passage of the same document is not a rival.
    of = partial(documents_of, corpus) if has_documents(corpus) else None
    rows_Q2, scores_Q2 = best(index, hybrid, texts, vectors_QD, 2, context, documents_of=of)
    chosen = surest(scores_Q2, config.share)
    ids, passages = list(asked), corpus.passage_ids[rows_Q2[chosen, 0]].tolist()
    write_queries(outputs["queries"], {ids[question]: texts[question] for question in chosen.tolist()})
    write_qrels(outputs["queries"], "train", zip([ids[question] for question in chosen.tolist()], passages))
    return Report(
        f"{len(chosen):,} of {len(asked):,} questions labelled by {fusion}",
        metrics={"queries": float(len(chosen))},
        facts={"questions": len(asked), "queries": len(chosen), "fusion": str(fusion)},
    )


def surest(scores_Q2: NDArray[np.float32], share: float) -> NDArray[np.int64]:
    """The questions, ascending, int64: the `share` in which the best score leads the second by most.

    Of equal leads, the earlier question is taken.
    """
    import numpy as np

    lead_Q = scores_Q2[:, 0] - scores_Q2[:, -1]
    count = round(share * len(lead_Q))
    return np.sort(np.argsort(-lead_Q, kind="stable")[:count])


def read_questions(folder: Path) -> dict[str, str]:
    """Texts by id of a folder's `queries.jsonl`. Raises `InputError` if it has none."""
    from stillhouse.corpus.sources.labels import find_labels, read_labels
    from stillhouse.corpus.sources.rows import Query

    names = {name: path for name, path in find_labels(folder).items() if name.startswith("queries")}
    found = {row.id: row.text for row in read_labels(names) if isinstance(row, Query) and row.text.strip()}
    if not found:
        raise InputError(f"questions: {folder} has no queries.jsonl with questions (_id, text)")
    return found


STEP = Step(
    "label-queries",
    "labels questions with the passage that BM25 and a retriever find, if they are confident",
    Config,
    inputs=(*SEARCHED, BM25_INDEX),
    outputs=(Port("queries", "the questions and their passages, for `ingest` (train_queries)"),),
    run=run,
    version=5,
)
