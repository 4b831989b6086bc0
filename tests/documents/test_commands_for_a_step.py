"""The commands that run one step, or search, on the folders that they name: a tiny corpus, model and index."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from chat_server import serving
from documented_commands import section
from small_workspaces import asking, write_words
from terminal import Terminal

from stillhouse.cli import label
from stillhouse.core.artifacts import read_manifest
from stillhouse.corpus.store import Corpus
from stillhouse.serving.query_log import QueryLog

RunsOfSteps = Callable[[Path], Callable[..., dict[str, Path]]]
ARTICLES = {
    "animals": ["the red bird sings in the tree", "a blue fish swims in the green tree"],
    "plants": ["one tree grows in the red and green", "two blue birds and a red fish"],
    "songs": ["where the bird sings a fish swims", "one bird of three sings in green"],
}


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, small_corpus: Path, tiny_model: Path, runs_of_steps: RunsOfSteps
) -> dict[str, Path]:
    """The inputs of the commands, by the names of a workspace's folders."""
    run = runs_of_steps(tmp_path_factory.mktemp("made"))
    lengths = {"query_length": 16, "passage_length": 24}
    start = run("fetch-model", {}, model=str(tiny_model), **lengths)["encoder"]
    bm25 = run("bm25", {"corpus": small_corpus}, depth=5, negatives_depth=5)
    few = {"max_steps": 2, "batch_size": 4, "negatives_per_query": 1, "negatives_depth": 5}
    inputs = {"corpus": small_corpus, "encoder": start, "negatives": bm25["negatives"]}
    trained = run("train-retriever", inputs, **few)["retriever"]
    index = run("index", {"corpus": small_corpus, "retriever": trained})["index"]
    inputs = {"corpus": small_corpus, "bm25": bm25["bm25"], "candidates/trained": trained, "indexes/trained": index}
    best = run("select-best", inputs)
    return {
        "artifacts/ingest/corpus": small_corpus,
        "artifacts/bm25/bm25": bm25["bm25"],
        "artifacts/bm25/negatives": bm25["negatives"],
        "artifacts/pretraining/encoder": start,
        "artifacts/retriever_1/retriever": trained,
        "artifacts/retriever_1_index/index": index,
        "artifacts/distilled/retriever": trained,
        "artifacts/fetch_model/encoder": trained,
        "artifacts/zero_shot_index/index": index,
    } | {f"artifacts/best/{name}": best[name] for name in ("retriever", "index", "hybrid")}


@pytest.fixture
def terminal(made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name, folder in made.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(folder)
    for name in ("ingest/corpus", "bm25/negatives", "retriever_1/retriever"):
        (tmp_path / Path(name).name).symlink_to(tmp_path / "artifacts" / name)
    (tmp_path / "index").symlink_to(tmp_path / "artifacts/retriever_1_index/index")
    return Terminal(tmp_path, monkeypatch)


def test_an_index_is_kept(terminal: Terminal) -> None:
    terminal.replaced = {"--layers 3": "--layers 1"}  # the model of tests has two
    terminal.type_all(section("docs/fine-tuning.md", "Keeping an index"))
    assert Path("new/curves/curves.csv").is_file()


def test_bm25_and_a_retriever_are_fused_and_weights_averaged(terminal: Terminal) -> None:
    terminal.type_all(section("docs/fine-tuning.md", "Hybrid search"))
    terminal.type_all(section("docs/fine-tuning.md", "Averages of weights"))
    assert read_manifest(Path("artifacts/hybrid/hybrid")).step == "hybrid"
    assert Path("artifacts/average/choices/choices.csv").read_text().count("\n") == 5, "a row for each alpha"


def test_a_retriever_is_measured_on_every_corpus_of_a_folder(terminal: Terminal) -> None:
    for name, words in (("one", ("bird", "fish", "tree")), ("two", ("red bird", "green fish"))):
        write_words(Path("path/to/beir") / name, words)
    terminal.type_all(section("docs/evaluate.md", "On other corpora"))
    metrics = json.loads(Path("zero-shot/metrics.json").read_text())
    assert list(metrics["corpora"]) == ["one", "two"] and list(metrics["average"]) == ["best", "best_hybrid", "bm25"]
    assert Path("zero-shot/zero_shot.html").is_file()


def test_questions_of_a_file_and_of_a_pipe_are_answered(terminal: Terminal) -> None:
    Path("questions.txt").write_text("where does the red bird sing\nwhich fish swims\n")
    terminal.type_all(section("docs/evaluate.md", "Questions from a program"))
    answers = [json.loads(line) for line in Path("answers.jsonl").read_text().splitlines()]
    assert [answer["question"] for answer in answers] == Path("questions.txt").read_text().splitlines()
    [said] = terminal.type_all(section("docs/steps.md", "Encoding and the index")).values()
    answers = [json.loads(line) for line in said.splitlines()]
    assert [answer["question"] for answer in answers] == ["what is an echo", "who hears mice"]
    assert all(
        answer["hits"][0].keys() == {"rank", "score", "passage_id", "title", "text", "fields"} for answer in answers
    )
    assert all(len(answer["hits"]) == 1 for answer in answers)


def write_articles() -> None:
    Path("path/to/articles").mkdir(parents=True)
    for name, paragraphs in ARTICLES.items():
        text = "".join(f"{paragraph}.\n\n" for paragraph in paragraphs)
        (Path("path/to/articles") / f"{name}.md").write_text(f"# {name}\n\n{text}")


def test_passages_get_questions_of_a_person(terminal: Terminal) -> None:
    write_articles()
    terminal.patch.setattr(label, "serve", asking("songs#1", "what sings"))
    terminal.type_all(section("docs/train.md", "Twenty questions of your own"))
    assert yaml.safe_load(Path("asked/params.yaml").read_text())["ingest"]["dev_queries"] == "../questions"


def test_questions_of_a_log_are_labelled(terminal: Terminal) -> None:
    log = QueryLog(Path("asked"), 30)
    for query in ("where does the red bird sing", "which fish"):
        log.note("v1", query, [])
    terminal.replaced = {"--queries labelled": "--queries labelled --share 1"}
    terminal.type_all(section("docs/train.md", "Questions without answers"))
    assert len(Path("labelled/queries.jsonl").read_text().splitlines()) == 2


def test_a_chat_model_asks_the_questions(terminal: Terminal) -> None:
    for name in ("corpus", "index", "retriever", "negatives"):
        Path(name).unlink()
    write_articles()
    with serving() as server:
        terminal.replaced = {"http://localhost:11434/v1": server.address}
        terminal.type_all(section("docs/train.md", "A language model writes the questions"))
    assert server.requests and {request["model"] for request in server.requests} == {"qwen2.5:7b"}
    assert len(Corpus.open(Path("corpus")).queries_of("train")) > 0
