"""A service's answers equal the library's on the same folders, with any number of clients."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import openai
import pytest
import torch
from serving_releases import Running, fields_of, running, searcher_of

from stillhouse.corpus.store import Corpus
from stillhouse.models.encoder import BiEncoder
from stillhouse.search.bm25 import BM25
from stillhouse.search.filtered import FilteredBM25
from stillhouse.search.searcher import Hit
from stillhouse.search.vector_index import VectorIndex
from stillhouse.serving.settings import Limits

QUERIES = [
    f"where does the {colour} {thing} {number} sing"
    for colour, thing, number in product(("red", "green", "blue"), ("bird", "fish"), ("one", "two"))
] + ["tree", "what swims in the red tree and grows in the green tree and sings", "unknownword"]


def same(hits: Sequence[dict[str, Any]], found: Sequence[Hit]) -> None:
    assert [hit["passage_id"] for hit in hits] == [hit.passage_id for hit in found]
    assert [hit["rank"] for hit in hits] == [hit.rank for hit in found]
    np.testing.assert_allclose([hit["score"] for hit in hits], [hit.score for hit in found], atol=1e-5)


@pytest.mark.parametrize("top", [1, 7, 24, 200])
def test_answers_are_those_of_the_offline_search(served: Running, two_releases: list[Path], top: int) -> None:
    offline = searcher_of(two_releases[0])
    answer = served.search(queries=QUERIES, top=top)
    assert answer["release"] == served.service.releases.current.name
    for query, each in zip(QUERIES, answer["answers"], strict=True):
        found = offline.search(query, top)
        same(each["hits"], found)
        assert [(hit["title"], hit["text"]) for hit in each["hits"]] == [(hit.title, hit.text) for hit in found]


@pytest.mark.parametrize("top", [1, 5, 24])
@pytest.mark.parametrize("filter", [{}, {"fields": {"tags": "x"}}])
def test_documents_are_those_of_a_loop_over_the_whole_answer(
    served: Running, two_releases: list[Path], top: int, filter: dict[str, Any]
) -> None:
    passages = Corpus.open(two_releases[0] / "corpus").passages.set_index("passage_id")
    whole = served.search(queries=QUERIES, top=24, filter=filter)["answers"]
    found = served.search(queries=QUERIES, top=top, filter=filter, documents=True)["answers"]
    for every, each in zip(whole, found, strict=True):
        expected: dict[str, str] = {}
        for hit in every["hits"]:
            expected.setdefault(passages["article_id"][hit["passage_id"]], hit["passage_id"])
        assert [(hit["document_id"], hit["passage_id"]) for hit in each["hits"]] == list(expected.items())[:top]
        assert all(hit["section"] == "" for hit in each["hits"])


def test_many_clients_get_what_one_gets(served: Running) -> None:
    alone = [served.search(query=query, top=9)["answers"][0] for query in QUERIES]

    def ask(number: int) -> Any:
        with httpx2.Client(base_url=served.url, timeout=60, trust_env=False) as client:
            body = {"query": QUERIES[number % len(QUERIES)], "top": 9}
            return client.post("/search", json=body).json()["answers"][0]

    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, range(48)))
    assert together == [alone[number % len(QUERIES)] for number in range(48)]  # to the last bit of the scores


def slow_ranking(folder: Path, query: str, rows: np.ndarray) -> list[str]:
    """Rank the ids of some passages by the inner products of their vectors."""
    encoder, index = BiEncoder.load(folder / "retriever").eval(), VectorIndex(folder / "index")
    texts = encoder.queries([query])
    vector = encoder(*texts.batch([0], torch.device("cpu")), "query")[0].detach().numpy()
    scores = index.vectors(rows.astype(np.int32)) @ vector
    ids = Corpus.open(folder / "corpus").passage_ids[rows]
    return [str(ids[place]) for place in np.lexsort((rows, -scores.round(6)))]


WHERE: list[tuple[dict[str, Any], Callable[[dict[str, Any]], bool]]] = [
    ({"product": "vpn"}, lambda known: known["product"] == "vpn"),
    ({"product": {"not": ["vpn", "mail"]}, "tags": "x"}, lambda known: known["product"] not in (None, "vpn", "mail")),
    ({"page": {"gt": 1, "lte": 3}, "tags": ["t1"]}, lambda known: known["page"] in (2, 3) and "t1" in known["tags"]),
    ({"date": {"gte": "2024-03", "lt": "2024-05-01"}}, lambda known: "2024-03" <= (known["date"] or "") < "2024-05-01"),
    ({"product": "fax"}, lambda known: False),
]  # fmt: skip


@pytest.mark.parametrize(("where", "meets"), WHERE)
def test_fields_leave_passages_out_and_keep_the_ranking(
    served: Running, two_releases: list[Path], where: dict[str, Any], meets: Callable[[dict[str, Any]], bool]
) -> None:
    folder = two_releases[0]
    ids = list(Corpus.open(folder / "corpus").passage_ids[np.arange(24)])
    rows = np.array([row for row in range(24) if meets(fields_of(row))], np.int64)
    dense = served.search(query=QUERIES[0], top=24, filter={"fields": where}, bm25=0)["answers"][0]["hits"]
    assert [hit["passage_id"] for hit in dense] == slow_ranking(folder, QUERIES[0], rows)
    for hit in dense:
        known = fields_of(ids.index(hit["passage_id"]))
        assert hit["fields"] == {name: value for name, value in known.items() if value is not None}
    offline = searcher_of(folder)
    for top in (3, 24):
        both = served.search(query=QUERIES[0], top=top, filter={"fields": where})["answers"][0]["hits"]
        found = offline.search(QUERIES[0], top, where)
        same(both, found)
        assert [hit["fields"] for hit in both] == [hit.fields for hit in found] and len(both) == min(top, len(rows))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"products": "vpn"}, "filter.fields: the corpus has no field 'products'; it has page, product, tags, date"),
        ({"page": "3"}, "filter.fields: the field 'page' holds numbers, not \"3\"; compare it with such"),
        ({"page": {"gte": {"a": [1]}}}, "filter.fields: the field 'page' holds numbers, not {\"a\": [1]}"),
        ({"tags": {"like": "x"}}, "filter.fields: 'like' compares nothing"),
    ],
)
def test_conditions_that_fit_no_field_are_refused(served: Running, where: dict[str, Any], message: str) -> None:
    answer = served.client.post("/search", json={"query": "tree", "filter": {"fields": where}})
    assert answer.status_code == 422 and message in answer.json()["error"]["message"]


def test_the_share_of_bm25_blends_the_two_rankings(served: Running, two_releases: list[Path]) -> None:
    query = "where does the blue tree two sing"
    dense = served.search(query=query, top=24, bm25=0)["answers"][0]["hits"]
    assert [hit["passage_id"] for hit in dense] == slow_ranking(two_releases[0], query, np.arange(24))
    lexical = served.search(query=query, top=1, bm25=1)["answers"][0]["hits"][0]
    assert {"blue", "tree", "two"} <= set(lexical["text"].split())
    middle = served.search(query=query, top=24, bm25=0.3)["answers"][0]["hits"]
    # The release's own fusion is that convex combination, so both rankings are the same.
    assert middle == served.search(query=query, top=24)["answers"][0]["hits"]


def test_ids_alone_are_ids_and_scores(served: Running) -> None:
    [answer] = served.search(query="tree", top=2, texts=False)["answers"]
    assert [sorted(hit) for hit in answer["hits"]] == [["passage_id", "rank", "score"]] * 2


@pytest.mark.parametrize("role", ["query", "passage"])
def test_openai_s_client_gets_the_library_s_vectors(served: Running, two_releases: list[Path], role: str) -> None:
    texts = [*QUERIES, " ".join(["tree"] * 60)]
    encoder = BiEncoder.load(two_releases[0] / "retriever").eval()
    read = encoder.texts(texts, role)
    wanted = np.stack(
        [encoder(*read.batch([n], torch.device("cpu")), role)[0].detach().numpy() for n in range(len(texts))]
    )
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none")
    for encoding in ("float", "base64"):
        made = client.embeddings.create(
            model="retriever",
            input=texts,
            encoding_format=encoding,
            extra_body={"input_type": role},  # type: ignore[call-overload]
        )
        found = [each.embedding for each in made.data]
        if encoding == "base64":
            import base64

            found = [np.frombuffer(base64.b64decode(each), "<f4") for each in found]
        np.testing.assert_allclose(np.array(found), wanted, atol=2e-6)
        assert made.usage.prompt_tokens == sum(map(len, read.ids))
    default = client.embeddings.create(model="retriever", input=texts[0], extra_body={"input_type": role})
    np.testing.assert_allclose(default.data[0].embedding, wanted[0], atol=2e-6)
    assert [model.id for model in client.models.list()] == ["retriever"]
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="another", input="tree")


def test_fewer_dimensions_are_the_first_ones_at_length_one(served: Running) -> None:
    whole, part = (
        np.array(served.client.post("/embed", json={"inputs": "tree"} | asked).json()[0])
        for asked in ({}, {"dimensions": 8})
    )
    np.testing.assert_allclose(part, whole[:8] / np.linalg.norm(whole[:8]), atol=1e-6)


def test_a_large_request_is_computed_in_parts(two_releases: list[Path], served: Running) -> None:
    with running(two_releases[0], Limits(batch_tokens=20)) as small:
        texts = QUERIES * 3
        small_made, made = (each.client.post("/embed", json={"inputs": texts}).json() for each in (small, served))
        assert small_made == made
        text = small.client.get("/metrics").text
    counted = next(
        line for line in text.splitlines() if line.startswith('stillhouse_serve_batch_tokens_bucket{le="32.0"}')
    )
    total = next(line for line in text.splitlines() if line.startswith("stillhouse_serve_batch_tokens_count"))
    assert float(counted.split()[-1]) == float(total.split()[-1]) > 10


def test_many_questions_behind_a_wide_filter_need_the_memory_of_one() -> None:
    bm25 = BM25.of((f"tree {number % 7} bird {number % 11}" for number in range(20_000)), 0.9, 0.4)
    some = FilteredBM25(bm25, np.arange(0, 20_000, 2, dtype=np.int32))
    queries = ["tree bird", "bird 3", "nothing"] * 50
    some.search(queries[:3], 5)
    tracemalloc.start()
    rows_QK, scores_QK = some.search(queries, 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows_QK.shape == scores_QK.shape == (150, 5) and peak < 4 << 20
    assert (rows_QK[2] == -1).all() and (rows_QK[0] >= 0).all() and (np.diff(scores_QK[1]) <= 0).all()
