"""The parts of the suite about rankings: BM25 from texts to ranks, and the evaluation of a run."""

from __future__ import annotations

import json

from suite_parts import Job, Part, Row, Side, Timed

QUERIES = 200
K1, B = 0.9, 0.4
RUN_DEPTH, RUN_PASSAGES = 100, 100_000
MEASURES = "nDCG@10 RR@10 R@50 R@100"


def prepare_lexical(job: Job) -> None:
    """Passages of `wiki-intro`; queries are words from the middle of some."""
    from suite_corpus import read_texts, write_texts

    write_texts(job)
    texts = read_texts(job)
    chosen = [texts[place * len(texts) // QUERIES].split() for place in range(QUERIES)]
    queries = [" ".join(words[len(words) // 2 :][:6]) for words in chosen]
    (job.folder / "queries.json").write_text(json.dumps(queries), encoding="utf-8")


def lexical(name: str) -> Side:
    def side(job: Job) -> Timed:
        from suite_corpus import read_texts

        texts = read_texts(job)
        queries = json.loads((job.folder / "queries.json").read_text(encoding="utf-8"))
        return {"ours": bm25_here, "bm25s": bm25_by_bm25s, "rank_bm25": bm25_by_rank_bm25}[name](texts, queries)

    return side


def bm25_here(texts: list[str], queries: list[str]) -> Timed:
    from stillhouse.retrieval.search.bm25 import BM25

    return lambda: {"value": float(BM25.of(texts, K1, B).search(queries, RUN_DEPTH)[1][:, 0].mean())}


def bm25_by_bm25s(texts: list[str], queries: list[str]) -> Timed:
    import bm25s
    import Stemmer

    cut = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "show_progress": False}

    def run() -> dict[str, float]:
        index = bm25s.BM25(k1=K1, b=B)
        index.index(bm25s.tokenize(texts, **cut), show_progress=False)
        found = index.retrieve(bm25s.tokenize(queries, **cut), k=RUN_DEPTH, show_progress=False)
        return {"value": float(found.scores[:, 0].mean())}

    return run


def bm25_by_rank_bm25(texts: list[str], queries: list[str]) -> Timed:
    """Its own weighting of a word, so its scores are others; words are cut as the others cut them."""
    import bm25s
    import numpy as np
    import Stemmer
    from rank_bm25 import BM25Okapi

    cut = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "show_progress": False, "return_ids": False}

    def run() -> None:
        index = BM25Okapi(bm25s.tokenize(texts, **cut), k1=K1, b=B)
        for query in bm25s.tokenize(queries, **cut):
            scores = index.get_scores(query)
            best = np.argpartition(-scores, RUN_DEPTH)[:RUN_DEPTH]
            best[np.argsort(-scores[best])]

    return run


def write_run(job: Job) -> None:
    import numpy as np

    from stillhouse.corpus.passage_ids import PassageIds
    from stillhouse.evaluation import runs

    rng = np.random.default_rng(0)
    query_ids = [f"q{number}" for number in range(job.size)]
    passage_ids = PassageIds([f"p{number}" for number in range(RUN_PASSAGES)])
    rows_QK = np.stack([rng.choice(RUN_PASSAGES, RUN_DEPTH, replace=False) for _ in query_ids]).astype(np.int32)
    scores_QK = -np.sort(-rng.random(rows_QK.shape, dtype=np.float32), axis=1)
    runs.write_run(job.folder / "run.trec", query_ids, passage_ids, rows_QK, scores_QK, "random")
    # Two relevant passages a query: one at a random place of its ranking, one that may be anywhere.
    place_Q, anywhere_Q = rng.integers(RUN_DEPTH, size=job.size), rng.integers(RUN_PASSAGES, size=job.size)
    lines = [
        f"{query} 0 p{row} 1\n"
        for query, ranked, place, other in zip(query_ids, rows_QK, place_Q, anywhere_Q)
        for row in dict.fromkeys((int(ranked[place]), int(other)))
    ]
    (job.folder / "qrels.trec").write_text("".join(lines), encoding="utf-8")


def evaluate(job: Job) -> Timed:
    import pandas as pd

    from stillhouse.evaluation.measures import parse_measures, per_query
    from stillhouse.evaluation.runs import read_run

    def run() -> dict[str, float]:
        names = ["query_id", "zero", "passage_id", "relevance"]
        qrels = pd.read_csv(job.folder / "qrels.trec", sep=" ", names=names)
        values = per_query(qrels, read_run(job.folder / "run.trec"), parse_measures(MEASURES))
        return {"value": [float(values[name].mean()) for name in MEASURES.split()]}

    return run


def evaluate_by_ir_measures(job: Job) -> Timed:
    import ir_measures

    from stillhouse.evaluation.measures import parse_measures

    def run() -> dict[str, float]:
        qrels = ir_measures.read_trec_qrels(str(job.folder / "qrels.trec"))
        ranked = ir_measures.read_trec_run(str(job.folder / "run.trec"))
        measures = parse_measures(MEASURES)
        means = ir_measures.calc_aggregate(measures, qrels, ranked)
        return {"value": [float(means[measure]) for measure in measures]}

    return run


def evaluate_by_ranx(job: Job) -> Timed:
    """It compiles its functions when they are first called, here over another query before the clock starts."""
    import warnings

    from ranx import Qrels, Run
    from ranx import evaluate as measured

    warnings.filterwarnings("ignore", module="ranx")  # of its own types
    names = ["ndcg@10", "mrr@10", "recall@50", "recall@100"]

    def means(qrels: str, run: str) -> list[float]:
        found = measured(Qrels.from_file(qrels, kind="trec"), Run.from_file(run, kind="trec"), names)
        return [float(found[name]) for name in names]

    small = {"qrels": "q 0 p 1\n", "run": "q Q0 p 1 1.0 x\n"}
    for name, text in small.items():
        (job.folder / f"small.{name}").write_text(text, encoding="utf-8")
    means(*(str(job.folder / f"small.{name}") for name in small))
    return lambda: {"value": means(str(job.folder / "qrels.trec"), str(job.folder / "run.trec"))}


PARTS = (
    Part(
        "lexical",
        f"BM25: splits passages of `wiki-intro` into stemmed words, indexes them and answers {QUERIES} queries to "
        "depth 100. *Value* is the mean of the best scores.",
        "passages",
        (2000, 10_000, 50_000),
        (Row("BM25", lexical("ours"), {"bm25s": lexical("bm25s"), "rank_bm25": lexical("rank_bm25")}),),
        prepare_lexical,
        ("wiki-intro",),
    ),
    Part(
        "evaluation",
        f"Reads a TREC run with {RUN_DEPTH} passages a query and computes {MEASURES}. *Value* is the means of all "
        "four, to a millionth. ranx compiles its functions before the clock starts, for some seconds in each process.",
        "queries",
        (200, 1000, 5000),
        (Row("run file", evaluate, {"ir_measures": evaluate_by_ir_measures, "ranx": evaluate_by_ranx}, 1e-6),),
        write_run,
    ),
)
