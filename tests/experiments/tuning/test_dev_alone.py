"""A real trial on a corpus of a few passages: it sees the dev questions, never the test questions."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import yaml
from beir_source import write_beir

from stillhouse import cli
from stillhouse.core.context import Context
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.experiments.tuning.search import measure_dev

COLOURS, THINGS = ("red", "green", "blue"), ("bird", "fish", "tree")
SPLITS = {"train": range(12), "dev": range(12, 18), "test": range(18, 24)}


@pytest.fixture
def workspace(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    texts = [f"the {' '.join(words)}" for words in product(COLOURS, THINGS, ("one", "two", "three"))]
    asked = [f"where does {text} sing" for text in texts[:24]]
    source = write_beir(tmp_path / "source", [f"{text} sings in the tree" for text in texts], asked, **SPLITS)
    recipe = {
        "graph": "labelled",
        "fetch_model": {"model": str(tiny_model), "pooling": "mean", "query_length": 16, "passage_length": 24},
        "ingest": {"source": str(source)},
        "mine_1": {"negatives_depth": 4},
        "retriever_1": {
            "max_steps": 4,
            "epochs": None,
            "batch_size": 4,
            "negatives_per_query": 1,
            "negatives_depth": 4,
            "metric_for_best_model": "rr10",
            "eval_steps": 1,
            "precision": "fp32",
        },
    }
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "params.yaml").write_text(yaml.safe_dump(recipe))
    (folder / "space.yaml").write_text("settings: {retriever_1.learning_rate: {min: 1.0e-3, max: 1.0e-2, scale: log}}")
    monkeypatch.chdir(folder)
    return folder


def test_a_trial_reads_no_test_questions(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for name in ("queries_of", "qrels_of", "answers_of", "relevant"):
        whole = getattr(Corpus, name)

        def noted(self: Corpus, split: str, whole: object = whole) -> object:
            asked.append(split)
            return whole(self, split)  # type: ignore[operator]

        monkeypatch.setattr(Corpus, name, noted)
    assert cli.main(["run", "--until", "retriever_1_index", "--quiet"]) == 0
    asked.clear()
    assert cli.main(["tune", "--space", "space.yaml", "--quiet", "--trials", "2"]) == 0
    assert set(asked) <= {"train", "dev"} and "dev" in asked
    check_the_figure_of_the_best(workspace)


def check_the_figure_of_the_best(workspace: Path) -> None:
    """Compare the figure with RR@10 of the dev queries over all passages, by sentence-transformers and a loop."""
    from sentence_transformers import SentenceTransformer

    [kept] = (workspace / "tune" / "trials").iterdir()
    made = kept / "artifacts"
    index = made / "retriever_1_index" / "index"
    figure = measure_dev(made / "ingest" / "corpus", made / "retriever_1" / "retriever", index, Context(kept, "cpu"))
    encoder = SentenceTransformer(str(made / "retriever_1" / "retriever"), device="cpu")
    corpus = Corpus.open(made / "ingest" / "corpus")
    queries = corpus.queries_of("dev")
    assert list(queries["query_id"]) == [f"q{n}" for n in SPLITS["dev"]]
    scores = encoder.encode(list(queries["text"])) @ encoder.encode(list(passage_texts(corpus))).T
    ids = list(corpus.passages["passage_id"])
    for row, name, value in zip(scores, queries["query_id"], figure, strict=True):
        rank = 1 + int((row > row[ids.index(f"p{name[1:]}")] + 1e-6).sum())
        assert value == pytest.approx(1 / rank if rank <= 10 else 0.0)
