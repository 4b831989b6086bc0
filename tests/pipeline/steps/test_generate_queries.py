"""Questions from a chat model: cached answers, the round trip, and their way into a corpus and training."""

from __future__ import annotations

import html
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from chat_server import Answer, ChatServer, asked_about, completion, serving, two_questions
from exact_ranking import bm25_scores

from stillhouse import cli
from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus import chat_api
from stillhouse.corpus.query_generation import ALIKE, UNCLEAR
from stillhouse.corpus.store import Corpus, passage_texts

RunStep = Callable[..., dict[str, Path]]
SECRET = "sk-abcdefghijklmnop"
ARTICLES = {
    "animals": ["the red bird sings in the tree", "a blue fish swims in the green tree"],
    "plants": ["one tree grows in the red and green", "two blue birds and a red fish"],
    "colours": ["green is the tree and blue the bird", "three fish sings of red in blue"],
    "songs": ["where the bird sings a fish swims", "one bird of three sings in green"],
    "numbers": ["three birds and one red tree", "two fish in one blue tree"],
    "places": ["in the tree is a green bird", "the blue of the fish and the red of one"],
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_api, "FIRST_PAUSE", 0.01)
    monkeypatch.delenv(chat_api.KEY, raising=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Articles of two passages each."""
    for name, paragraphs in ARTICLES.items():
        path = tmp_path / "articles" / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {name}\n\n" + "\n\n".join(paragraphs) + "\n")
    return tmp_path / "articles"


def by_number(request: dict[str, Any]) -> Answer:
    """Answer with a question that is unique to the passage, and one that all passages share."""
    words = " ".join(reversed(asked_about(request).split()))  # not a quote
    return completion(f"- Which passage is {words}?\n- What is this?")


def table(folder: Path) -> list[tuple[str, str, str]]:
    return list(Corpus(folder).queries[["query_id", "text", "taken_from"]].itertuples(index=False, name=None))


def dropped(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "dropped.parquet")


def test_the_table_holds_what_the_model_asked(small_corpus: Path, run_step: RunStep) -> None:
    with serving(two_questions) as server:
        made = run_step("generate-queries", {"corpus": small_corpus}, base_url=server.address, model="stand-in")
    passages = Corpus.open(small_corpus).passages
    expected = []
    for id, text in zip(passages["passage_id"], passages["text"]):
        words = text.split()
        both = [f"What of {' '.join(words[:4])}?", f"Where {' '.join(words[-4:])} of {words[1]} {words[3]}?"]
        expected += [(f"generated:{id}:{number}", question, id) for number, question in enumerate(both)]
    often = Counter(text for _, text, _ in expected)
    assert len(often) < len(expected), "some questions fit several passages"
    assert table(made["queries"]) == [row for row in expected if often[row[1]] == 1]
    queries = Corpus(made["queries"]).queries
    assert set(queries["split"]) == {"train"} and set(queries["origin"]) == {"generated"}
    facts = read_manifest(made["queries"]).facts
    assert (facts["passages_asked"], facts["made"], facts["repeated"]) == (24, 48, 48 - len(queries))
    assert facts["queries"] == len(queries) and facts["passages_left_out"] == 0 and facts["dropped"] == {}
    assert not len(dropped(made["queries"]))


@pytest.mark.parametrize(("kind", "asked"), [("claims", "claim"), ("keywords", "search"), ("titles", "title")])
def test_texts_of_other_kinds_need_no_question_mark(
    kind: str, asked: str, small_corpus: Path, run_step: RunStep
) -> None:
    def two(request: dict[str, Any]) -> Answer:
        words = " ".join(reversed(asked_about(request).split()))
        return completion(f"Here are two {asked}s:\n- {words}\n- more of {words}")

    with serving(two) as server:
        inputs = {"corpus": small_corpus}
        made = run_step("generate-queries", inputs, base_url=server.address, model="m", kind=kind, max_passages=4)
        assert all(f"Each {asked} must be" in request["messages"][-1]["content"] for request in server.requests)
    texts = [text for _, text, _ in table(made["queries"])]
    assert len(texts) == 8 and sum(text.startswith("more of ") for text in texts) == 4


def test_a_repeat_asks_nothing_and_the_order_of_answers_shows_nowhere(small_corpus: Path, run_step: RunStep) -> None:
    chance = random.Random(0)

    def late(request: dict[str, Any]) -> Answer:
        return replace(by_number(request), waits=chance.uniform(0, 0.05))

    with serving(late) as server:
        first = run_step("generate-queries", {"corpus": small_corpus}, "one", base_url=server.address, model="m")
        assert len(server.requests) == 24 and len(table(first["queries"])) == 24
        server.requests.clear()
        asked = {"model": "m", "max_concurrency": 8, "timeout_s": 9.0}
        second = run_step("generate-queries", {"corpus": small_corpus}, "two", base_url=server.address, **asked)
        assert not server.requests
        fewer = run_step(
            "generate-queries", {"corpus": small_corpus}, "few", base_url=server.address, **asked, max_passages=5
        )
        assert not server.requests and len(table(fewer["queries"])) == 5
        run_step(
            "generate-queries", {"corpus": small_corpus}, "more", base_url=server.address, model="m", temperature=0.1
        )
        assert len(server.requests) == 24, "another request, another answer"
    assert table(first["queries"]) == table(second["queries"])
    # The same model at another address, where no server listens.
    third = run_step("generate-queries", {"corpus": small_corpus}, "three", base_url="http://127.0.0.1:1/v1", model="m")
    for name in ("manifest.json", "queries.parquet"):
        assert (third["queries"] / name).read_bytes() == (first["queries"] / name).read_bytes()


def test_an_interrupted_run_is_resumed(small_corpus: Path, run_step: RunStep, tmp_path: Path) -> None:
    """The server refuses the key after ten answers. At most the answers on their way at that moment are asked again."""
    answered = 0

    def ten(request: dict[str, Any]) -> Answer:
        nonlocal answered
        answered += 1
        return by_number(request) if answered <= 10 else Answer("no", 401)

    settings: dict[str, Any] = {"model": "m", "max_concurrency": 3}
    with serving(ten) as server, pytest.raises(InputError, match="STILLHOUSE_CHAT_KEY"):
        run_step("generate-queries", {"corpus": small_corpus}, base_url=server.address, **settings)
    assert not (tmp_path / "generate-queries" / "queries").exists()
    with serving(by_number) as server:
        resumed = run_step("generate-queries", {"corpus": small_corpus}, base_url=server.address, **settings)
        assert 14 <= len(server.requests) < 14 + settings["max_concurrency"]
    with pytest.MonkeyPatch.context() as patch, serving(by_number) as server:
        patch.setenv("STILLHOUSE_WORK", str(tmp_path / "other-work"))
        calm = run_step("generate-queries", {"corpus": small_corpus}, "calm", base_url=server.address, **settings)
        assert len(server.requests) == 24
    for name in ("manifest.json", "queries.parquet"):
        assert (resumed["queries"] / name).read_bytes() == (calm["queries"] / name).read_bytes()


def test_passages_without_a_usable_answer_are_left_out_and_counted(small_corpus: Path, run_step: RunStep) -> None:
    def moody(useless: str) -> Callable[[dict[str, Any]], Answer]:
        return lambda request: completion("No.") if useless in asked_about(request) else by_number(request)

    passages = Corpus.open(small_corpus).passages
    few, many = (passages["text"].str.contains(word) for word in ("three", "sings"))
    assert (few.sum(), many.sum()) == (8, 24)
    settings = {"model": "m", "tries": 2}
    with serving(moody("three")) as server:
        made = run_step("generate-queries", {"corpus": small_corpus}, base_url=server.address, **settings)
        assert len(server.requests) == 16 + 2 * 8
    assert [id for _, _, id in table(made["queries"])] == list(passages["passage_id"][~few])
    facts = read_manifest(made["queries"]).facts
    assert (facts["passages_asked"], facts["passages_left_out"], facts["queries"]) == (24, 8, 16)
    with serving(moody("e")) as server, pytest.raises(InputError, match=r"13 of 13 passages .*\(13 × the answer is no"):
        run_step(
            "generate-queries",
            {"corpus": small_corpus},
            "none",
            base_url=server.address,
            seed=1,
            max_passages=13,
            **settings,
        )


def test_a_server_that_is_down_does_not_cost_hours(tmp_path: Path, run_step: RunStep) -> None:
    path = tmp_path / "passages.jsonl"
    path.write_text("".join(json.dumps({"id": f"p{n}", "text": f"passage {n}"}) + "\n" for n in range(200)))
    corpus = run_step("ingest", {}, source=str(path), queries="source")["corpus"]
    with serving(lambda request: Answer("{}", 503)) as server:
        with pytest.raises(InputError, match=r"20 passages in a row got no usable answer.*HTTP 503"):
            run_step(
                "generate-queries", {"corpus": corpus}, base_url=server.address, model="m", tries=2, max_concurrency=2
            )
        assert len(server.requests) < 60


def test_the_key_is_on_no_disk_and_in_no_output(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(chat_api.KEY, SECRET)
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "work"))
    monkeypatch.delenv("STILLHOUSE_QUIET")

    def telling(request: dict[str, Any]) -> Answer:
        words = asked_about(request).split()
        return completion(f"What of {' '.join(words[:4])}?\nWhose is {SECRET} of {' '.join(words[1:4])}?")

    with serving(telling) as server:
        words = ["--corpus", str(small_corpus), "--queries", str(tmp_path / "out"), "--base-url", server.address]
        assert cli.main(["generate-queries", *words, "--model", "m", "--report", str(tmp_path / "report.json")]) == 0
        assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {SECRET}"}
    with serving(lambda request: Answer(f"wrong key {SECRET}", 403)) as server:
        words[-1] = server.address
        assert cli.main(["generate-queries", *words, "--model", "other"]) == 2
    said = capsys.readouterr()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 24 and "wrong key ***" in said.err
    assert SECRET not in said.out + said.err
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_the_round_trip_keeps_what_an_independent_ranking_finds(
    small_corpus: Path, run_step: RunStep, retriever: Path
) -> None:
    corpus = Corpus.open(small_corpus)
    bm25 = run_step("bm25", {"corpus": small_corpus})["bm25"]
    index = run_step("index", {"corpus": small_corpus, "retriever": retriever})["index"]
    ports = {"bm25": {"bm25": bm25}, "dense": {"retriever": retriever, "index": index}}
    ports["both"] = ports["bm25"] | ports["dense"]

    def astray(request: dict[str, Any]) -> Answer:
        """Ask about passages of "two" what the passage of "one" answers, with another first word."""
        _, colour, thing, number, *_ = asked_about(request).split()
        astray = number == "two"
        return completion(f"{'What' if astray else 'Where'} is the {colour} {thing} {'one' if astray else number}?")

    kept: dict[str, set[str]] = {}
    with serving(astray) as server:
        everything = run_step("generate-queries", {"corpus": small_corpus}, "all", base_url=server.address, model="m")
        for name, inputs in ports.items():
            made = run_step(
                "generate-queries",
                {"corpus": small_corpus, **inputs},
                name,
                base_url=server.address,
                model="m",
                round_trip_depth=1,
                precision="fp32",
            )
            kept[name] = set(Corpus(made["queries"]).queries["query_id"])
            left_out = dropped(made["queries"])
            assert kept[name] | set(left_out["query_id"]) == set(Corpus(everything["queries"]).queries["query_id"])
            assert read_manifest(made["queries"]).facts["dropped"] == dict(Counter(left_out["reason"]))
    queries = Corpus(everything["queries"]).queries
    texts, passages = list(queries["text"]), passage_texts(corpus)
    rows = corpus.rows_of(queries["taken_from"])

    from sentence_transformers import SentenceTransformer

    scores_QN = bm25_scores(texts, passages)
    lexical = set(queries["query_id"][(scores_QN.argmax(axis=1) == rows) & (scores_QN.max(axis=1) > 0)])
    model = SentenceTransformer(str(retriever), device="cpu")
    vectors = [model.encode(part, normalize_embeddings=True) for part in (texts, passages)]
    dense = set(queries["query_id"][np.argmax(vectors[0] @ vectors[1].T, axis=1) == rows])
    assert kept == {"bm25": lexical, "dense": dense, "both": lexical | dense}
    assert len(lexical) != len(texts) and len(dense) != len(texts), "both leave some out"


def test_the_page_shows_some_kept_and_some_dropped_of_every_reason(tmp_path: Path, run_step: RunStep) -> None:
    rows = [{"id": f"p{n}", "text": f"<b>{n}</b> squared is {n * n}, as everybody knows who counts"} for n in range(60)]
    (tmp_path / "passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = run_step("ingest", {}, source=str(tmp_path / "passages.jsonl"), queries="source")["corpus"]

    def three(request: dict[str, Any]) -> Answer:
        text = asked_about(request)
        number = text[3 : text.index("</b>")]
        asked = [f"The square of {number}?", f"Of {number} the square?", f"What is <i>this</i> {number}?"]
        return completion("\n".join(asked))

    with serving(three) as server:
        settings = {"base_url": server.address, "model": "m"}
        made = run_step("generate-queries", {"corpus": corpus}, **settings)["queries"]
    left_out, kept = dropped(made), Corpus(made).queries
    assert Counter(left_out["reason"]) == dict.fromkeys((UNCLEAR, ALIKE), len(kept))
    assert len(kept) == 60 and not set(kept["query_id"]) & set(left_out["query_id"])
    _, counted, *samples = (made / "questions.html").read_text().split("<section")
    assert counted.count("33.3&nbsp;%") == 2
    of_row = (
        r'<tr><th scope="row">(.*?)(?: <span class="role">(.*?)</span>)?</th><td><b>(.*?)</b> .*?&lt;b&gt;(\d+)&lt;'
    )
    for table, sample in zip((kept.assign(reason=""), left_out), samples, strict=True):
        shown = re.findall(of_row, sample)
        expected = {
            (text, reason, passage, passage[1:])
            for _, text, passage, reason in table[["query_id", "text", "taken_from", "reason"]].itertuples(index=False)
        }
        assert len(shown) == len(set(shown)) == 20
        assert {(html.unescape(text), *others) for text, *others in shown} < expected
    assert sorted(Counter(reason for _, reason, *_ in shown).values()) == [10, 10]


def generated(run_step: RunStep, source: Path, server: ChatServer, **settings: object) -> dict[str, Path]:
    passages = run_step("ingest", {}, "passages", source=str(source), queries="source")["corpus"]
    inputs = {"corpus": passages}
    return {
        "passages": passages,
        **run_step("generate-queries", inputs, base_url=server.address, model="m", **settings),
    }


@pytest.mark.usefixtures("paragraphs_apart")
def test_made_questions_are_divided_by_articles(source: Path, run_step: RunStep) -> None:
    with serving(by_number) as server:
        made = generated(run_step, source, server)
    settings = {"source": str(source), "heldout_dev_articles": 0.2, "heldout_test_articles": 0.2}
    folder = run_step("ingest", {"generated": made["queries"]}, **settings)["corpus"]
    corpus, facts = Corpus.open(folder), read_manifest(folder).facts
    assert facts["labels"] == "synthetic" and facts["generated_queries"] == {"train": 8, "dev": 2, "test": 2}
    assert set(corpus.queries["origin"]) == {"generated"}
    assert sorted(corpus.queries["query_id"]) == sorted(Corpus(made["queries"]).queries["query_id"])
    joined = corpus.queries.merge(corpus.qrels, on=["query_id", "split"]).merge(corpus.passages, on="passage_id")
    assert len(joined) == 12 and (joined["taken_from"] == joined["passage_id"]).all()
    assert all(
        set(text.split()) < set(question[:-1].split()) for text, question in zip(joined["text_y"], joined["text_x"])
    )
    assert joined.groupby("article_id")["split"].nunique().max() == 1, "an article is in one split"
    pairs = run_step("ingest", {}, "pairs", **settings, queries="pairs", pair_sentence_words=1)["corpus"]
    of_pairs = Corpus.open(pairs)
    own = of_pairs.queries.merge(of_pairs.passages, left_on="taken_from", right_on="passage_id")
    split_of = dict(zip(joined["article_id"], joined["split"]))
    assert all(split_of[article] == split for article, split in zip(own["article_id"], own["split"]))


def test_made_questions_train_a_retriever(source: Path, run_step: RunStep, retriever: Path) -> None:
    with serving(by_number) as server:
        made = generated(run_step, source, server)
    corpus = run_step("ingest", {"generated": made["queries"]}, source=str(source))["corpus"]
    run_step("validate", {"corpus": corpus}, min_passages=1, min_train_queries=1, min_dev_queries=1)
    lexical = run_step("bm25", {"corpus": corpus}, negatives_depth=4)
    settings = {"max_steps": 3, "batch_size": 4, "negatives_per_query": 1, "negatives_depth": 4, "eval_steps": 100}
    inputs = {"corpus": corpus, "encoder": retriever, "negatives": lexical["negatives"]}
    trained = run_step("train-retriever", inputs, **settings)
    curves = pd.read_csv(trained["curves"] / "curves.csv")
    assert curves["step"].max() == 3 and np.isfinite(curves["train_loss"].dropna()).all()
    index = run_step("index", {"corpus": corpus, "retriever": trained["retriever"]})["index"]
    run = run_step("retrieve", {"corpus": corpus, "retriever": trained["retriever"], "index": index})["run"]
    page = run_step(
        "evaluate",
        {"corpus": corpus, "run/dense": run, "run/bm25": lexical["run"]},
        bootstrap_samples=100,
        randomisation_samples=100,
    )["evaluation"]
    metrics = json.loads((page / "metrics.json").read_text())
    assert metrics["bm25"]["RR@10"] == 1.0, "a question holds its passage's words"
    shown = (page / "report.html").read_text()
    assert "synthetic" in shown and "a question that a language model made from a passage" in shown
