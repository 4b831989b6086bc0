"""A release in a vector store: what publishing takes, and the recall of the store's own index.

python -m benchmarks.serving_store RELEASE ADDRESS
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.own_process import measure
from benchmarks.sized_releases import questions
from stillhouse.cli.serve import open_release
from stillhouse.core.context import Context
from stillhouse.serving.source import FolderSource
from stillhouse.serving.stores.publish import publish
from stillhouse.serving.stores.searcher import RELEASE
from stillhouse.serving.stores.store import open_store

QUESTIONS, DEPTH = 200, 10


def main(folder: Path, address: str) -> dict[str, Any]:
    release, store = open_release(FolderSource(folder)), open_store(address)
    if store.live():
        raise SystemExit(f"{address} has a release, so that nothing would be measured; give another #NAME")
    published = measure(lambda: {"table": publish(release, store, Context(folder, quiet=True))})
    vectors_QD = release.encode(release.tokenize(questions(QUESTIONS), "query"), "query")
    exact_QK, _ = release.index.search(vectors_QD, DEPTH)
    shares = []
    for vector_D, exact_K in zip(vectors_QD, exact_QK):
        best = {f"p{row}" for row in exact_K}
        found = store.search(store.live(), vector_D, DEPTH)
        shares.append(sum(row["passage_id"] in best for row, _ in found) / DEPTH)
    return {
        "published": published["seconds"],
        "publish_cpu": published["processor"],
        "publish_own": published["own"],
        "passages": store.notes(RELEASE)[store.live()]["passages"],
        "recall@10": float(np.mean(shares)),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2])))
