"""Small releases of the tests' tiny model, and services for them in threads."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uvicorn

from stillhouse.core.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.core.context import Context
from stillhouse.corpus.store import write_tables
from stillhouse.search.searcher import Searcher
from stillhouse.serving.app import configured, listen, make_service
from stillhouse.serving.open_releases import OpenReleases
from stillhouse.serving.release import Release
from stillhouse.serving.service import Service
from stillhouse.serving.settings import Limits
from stillhouse.serving.source import FolderSource, Source

TRAP = "<script>document.title='caught'</script> & \"red\" <b>birds</b>"
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
"""What a browser says about itself when it opens a page."""
PARTS = ("corpus", "retriever", "index", "hybrid")


def open_release(source: Source) -> Release:
    release = Release(source.folders(), Context(Path("unused"), "cpu", quiet=True))
    release.origin = source.origin()
    release.warm()
    return release


def searcher_of(folder: Path) -> Searcher:
    """The library's own search in the same folders."""
    corpus, retriever, index, hybrid = (folder / part for part in PARTS)
    return Searcher(corpus, retriever, index, Context(folder / "work", "cpu", quiet=True), hybrid=hybrid)


def fields_of(number: int) -> dict[str, Any]:
    """The fields of a passage of these corpora; every sixth passage has none."""
    if not number % 6:
        return dict.fromkeys(("page", "product", "tags", "date"))
    product = TRAP if number == 5 else ("vpn", "mail")[number % 2]
    return {
        "page": number % 5,
        "product": product,
        "tags": ["x", f"t{number % 4}"],
        "date": f"2024-0{number % 9 + 1}-01",
    }


def write_release_corpus(folder: Path, colours: str) -> Path:
    """Write a corpus of 24 passages in 8 articles. One passage holds HTML that would run in a page; so does a field."""
    words = colours.split()
    things = [
        (words[n % len(words)], ("bird", "fish", "tree")[n % 3], ("one", "two", "three")[n // 8]) for n in range(24)
    ]
    passages = {
        "passage_id": [f"{'xy'[n % 2]}/p{n}" for n in range(24)],
        "title": [f"{colour} {thing}" for colour, thing, _ in things],
        "text": [f"the {colour} {thing} {number} sings and grows in the tree" for colour, thing, number in things],
        "article_id": [f"a{n // 3}" for n in range(24)],
        "section": [""] * 24,
        "position": [n % 3 for n in range(24)],
    }
    passages["text"][5] = f"{TRAP} swims"
    texts = [f"where does the {colour} {thing} {number} sing" for colour, thing, number in things]
    ids = [f"q{n}" for n in range(24)]
    splits = ["train"] * 12 + ["dev"] * 6 + ["test"] * 6
    queries = {"query_id": ids, "text": texts, "split": splits}
    qrels = {"query_id": ids, "passage_id": passages["passage_id"], "relevance": [1] * 24, "split": splits}
    with whole_folder(folder) as staging:
        write_tables(staging, {"passages": passages, "queries": queries, "qrels": qrels})
        pq.write_table(pa.Table.from_pylist([fields_of(n) for n in range(24)]), staging / "fields.parquet")
        write_manifest(staging, "ingest", {}, {}, {"passages": 24, "of": colours})
    return folder


@pytest.fixture(scope="session")
def two_releases(
    tiny_model: Path,
    tmp_path_factory: pytest.TempPathFactory,
    runs_of_steps: Callable[[Path], Callable[..., dict[str, Path]]],
) -> list[Path]:
    """Two release folders with the same passage ids but different texts, vectors and weights."""
    from stillhouse.models.encoder import BiEncoder

    made = []
    for number, colours in enumerate(("red green blue", "blue a red the green")):
        root = tmp_path_factory.mktemp(f"release{number}")
        run = runs_of_steps(root / "made")
        corpus = write_release_corpus(root / "corpus", colours)
        model = root / "model"
        with whole_folder(model) as staging:
            encoder = BiEncoder.load(tiny_model, query_length=24, passage_length=32)
            for parameter in encoder.parameters():
                if parameter.dim() == 2:  # with small weights, all texts would have nearly the same vector
                    parameter.data.mul_(8 + number)
            encoder.save(staging)
            write_manifest(staging, "train-retriever", {}, {}, {})
        index = run("index", {"corpus": corpus, "retriever": model}, precision="fp32")["index"]
        bm25 = run("bm25", {"corpus": corpus}, depth=5, negatives_depth=5)["bm25"]
        inputs = {"corpus": corpus, "retriever": model, "index": index, "bm25": bm25}
        hybrid = run("hybrid", inputs, method="convex")["hybrid"]
        folder = root / "release"
        for name, source in zip(PARTS, (corpus, model, index, hybrid)):
            shutil.copytree(source, folder / name)
        made.append(folder)
    return made


@dataclass
class Running:
    """A service that listens at `url`."""

    url: str
    service: Service
    client: httpx2.Client

    def search(self, **body: Any) -> Any:
        answer = self.client.post("/search", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def running(place: Path | Source, limits: Limits | None = None, watch: float = 0, **settings: Any) -> Iterator[Running]:
    """Serves a folder, or another source, until the block ends."""
    lines: list[str] = settings.pop("lines", [])
    opener = settings.pop("opener", open_release)
    releases = OpenReleases(FolderSource(place) if isinstance(place, Path) else place, opener, lines.append)
    service = make_service(releases, limits or Limits(), log=lines.append, **settings)
    with ExitStack() as held:
        listening = held.enter_context(closing(listen("127.0.0.1", 0)))
        server = uvicorn.Server(configured(service, grace=30))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        if watch:
            releases.watch(watch)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        client = held.enter_context(httpx2.Client(base_url=url, timeout=60, trust_env=False))
        try:
            yield Running(url, service, client)
        finally:
            server.should_exit = True
            thread.join(timeout=30)
            releases.end()
            service.batcher.end()


@pytest.fixture(scope="session")
def served(two_releases: list[Path]) -> Iterator[Running]:
    """The first release, served with the default limits."""
    with running(two_releases[0]) as service:
        yield service


@pytest.fixture(scope="session")
def reranking(
    two_releases: list[Path], tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """The first release with a cross-encoder, served so that a request of more than three texts has parts."""
    from stillhouse.models.cross_encoder import CrossEncoder

    folder = tmp_path_factory.mktemp("reranking") / "release"
    shutil.copytree(two_releases[0], folder)
    with whole_folder(folder / "reranker") as staging:
        CrossEncoder.start(tiny_model, 32).save(staging)
        write_manifest(staging, "train-reranker", {}, {"corpus": read_manifest(folder / "corpus").digest}, {})
    with running(folder, Limits(texts=3, inputs=20)) as service:
        yield service
