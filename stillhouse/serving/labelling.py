"""A page for one person on this machine, who writes questions that passages of a corpus answer (`stillhouse label`).

Every answer is on the disk before the next passage is shown. The page works without scripts.
"""

import json
import shlex
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.arrays import evenly_spaced
from stillhouse.core.artifacts import write_whole_json
from stillhouse.core.errors import InputError
from stillhouse.core.own_files import make_folder
from stillhouse.core.pages import SECURE_HEADERS, page_template
from stillhouse.corpus.query_generation import chosen_rows
from stillhouse.corpus.sources.labels import find_labels, read_labels, write_qrels, write_queries
from stillhouse.corpus.sources.rows import Qrel, Query, Rejected
from stillhouse.corpus.sources.text_encoding import is_unicode
from stillhouse.corpus.store import Corpus, read_passage_texts
from stillhouse.search.bm25 import BM25, PASSAGES_SAMPLED, language_of

HOST = "127.0.0.1"
OWN = "label.json"
"""Marks a folder of answers; holds the source and the passages that were skipped."""
PREFIX = "label:"
"""Begins the id of a question; the id of the passage that was shown follows."""
HITS = 10
MOST_CHARACTERS = 1000
MOST_BYTES = 1 << 20
HEADERS = {"Content-Type": "text/html; charset=utf-8"} | SECURE_HEADERS
TEMPLATE = Path(__file__).with_suffix(".html")


class Shown(NamedTuple):
    """A passage as the page shows it."""

    id: str
    title: str
    text: str
    ticked: bool = False


class Labels:
    """The answers in a folder: `texts` and `relevant` (passage ids) by the passage that was shown.

    Raises `InputError` for a folder that holds something else, or answers about other passages.
    """

    def __init__(self, folder: Path, source: str, corpus: Corpus) -> None:
        self.folder, self.source = folder, source
        self.texts: dict[str, str] = {}
        self.relevant: dict[str, list[str]] = {}
        self.skipped: list[str] = []
        self._read()
        named = [*self.relevant, *(id for ids in self.relevant.values() for id in ids)]
        if (corpus.passage_ids.find(np.array(named, dtype=object)) < 0).any():
            raise InputError(
                f"{folder} has questions about passages that {source} does not have; choose another folder"
            )
        make_folder(folder)
        self._write()

    def _read(self) -> None:
        own = self.folder / OWN
        if not self.folder.exists() or (self.folder.is_dir() and not any(self.folder.iterdir())):
            return
        try:
            self.skipped = list(json.loads("" if own.is_symlink() else own.read_text(encoding="utf-8"))["skipped"])
        except (OSError, ValueError, LookupError, TypeError):
            raise InputError(f"{self.folder} was not made by `stillhouse label`; choose another folder") from None
        queries = self.folder / "queries.jsonl"
        answered = queries.is_file() and queries.stat().st_size
        for row in read_labels(find_labels(self.folder, "dev")) if answered else ():
            if isinstance(row, Query):
                self.texts[row.id.removeprefix(PREFIX)] = row.text
            elif isinstance(row, Qrel):
                self.relevant.setdefault(row.query_id.removeprefix(PREFIX), []).append(row.passage_id)
            elif isinstance(row, Rejected):
                raise InputError(f"{self.folder}: {row.where} cannot be read ({row.reason}); correct or remove it")
        # After a kill between the two files, a qrel may lack its question, and that of a skipped passage its qrel.
        self.texts = {id: text for id, text in self.texts.items() if id in self.relevant}
        self.relevant = {id: self.relevant[id] for id in self.texts}

    def save(self, passage_id: str, text: str, relevant: list[str]) -> None:
        """Returns once the question is on the disk."""
        self.texts[passage_id], self.relevant[passage_id] = text, relevant
        self._write()

    def skip(self, passage_id: str) -> None:
        """Shows a passage no more, and forgets its question."""
        self.texts.pop(passage_id, None), self.relevant.pop(passage_id, None)
        self.skipped = [*dict.fromkeys([*self.skipped, passage_id])]
        self._write()

    def _write(self) -> None:
        write_whole_json(self.folder / OWN, {"source": self.source, "skipped": self.skipped})
        pairs = [(PREFIX + id, passage) for id, passages in self.relevant.items() for passage in passages]
        write_qrels(self.folder, "dev", pairs)
        write_queries(self.folder, {PREFIX + id: text for id, text in self.texts.items()})


class Labelling:
    """What the page shows: passages in a random order, until `wanted` of them have a question."""

    def __init__(self, corpus: Corpus, labels: Labels, wanted: int, seed: int) -> None:
        self.corpus, self.labels, self.wanted = corpus, labels, wanted
        self._order_P = np.random.default_rng(seed).permutation(chosen_rows(corpus, None, seed))
        sampled = corpus.passages_at(evenly_spaced(corpus.passage_count, PASSAGES_SAMPLED), "text")["text"]
        self._bm25 = BM25.of(read_passage_texts(corpus), 1.5, 0.75, language_of(sampled.tolist()))

    def next_row(self) -> int | None:
        """The next passage without an answer; None if there are enough questions, or no more passages."""
        done = {*self.labels.texts, *self.labels.skipped}
        if len(self.labels.texts) >= self.wanted:
            return None
        rows = self._order_P[: len(done) + 1]
        return next((int(row) for row, id in zip(rows, self.corpus.passage_ids[rows]) if id not in done), None)

    def page(self, fields: dict[str, list[str]], error: str = "") -> str:
        """The page of the passage that `fields` names, or of the next one."""
        asked = fields.get("passage", [""])[0]
        row = self.row_of(asked) if asked else self.next_row()
        shown, hits, search, question = None, list[Shown](), "", ""
        if row is not None:
            [shown] = self._shown(np.array([row]), set())
            question = fields.get("question", [self.labels.texts.get(shown.id, "")])[0]
            search = fields.get("search", [""])[0]
            ticked = fields.get("relevant", [] if "question" in fields else self.labels.relevant.get(shown.id, []))
            hits = self._hits(row, search or question, [id for id in ticked if id != shown.id])
        return page_template(TEMPLATE).render(
            shown=shown,
            question=question,
            search=search,
            hits=hits,
            error=error,
            done=[(quote(id, safe=""), text) for id, text in self.labels.texts.items()],
            wanted=self.wanted,
            source=shlex.quote(self.labels.source),
            folder=shlex.quote(str(self.labels.folder)),
            absolute=self.labels.folder.resolve(),
            workspace=(Path(self.labels.source) / "params.yaml").is_file(),
            most=MOST_CHARACTERS,
        )

    def row_of(self, passage_id: str) -> int | None:
        """The row of a passage, or None for an id that the corpus does not have."""
        row = int(self.corpus.passage_ids.find(np.array([passage_id], dtype=object))[0])
        return row if row >= 0 else None

    def save(self, fields: dict[str, list[str]]) -> str:
        """Saves a question, or skips its passage. Returns what is wrong with it, or ""."""
        passage = fields.get("passage", [""])[0]
        if self.row_of(passage) is None:
            return "this passage is not in the corpus; reload the page"
        if "skip" in fields:
            self.labels.skip(passage)
            return ""
        text = " ".join(fields.get("question", [""])[0].split())
        others = [id for id in fields.get("relevant", []) if self.row_of(id) is not None]
        if not text or len(text) > MOST_CHARACTERS or not is_unicode(text):
            return f"write a question of at most {MOST_CHARACTERS} characters, or skip the passage"
        self.labels.save(passage, text, [*dict.fromkeys([passage, *others])])
        return ""

    def _hits(self, row: int, words: str, ticked: list[str]) -> list[Shown]:
        """The ticked passages, then the others that BM25 finds for some words."""
        before = [found for id in ticked if (found := self.row_of(id)) is not None]
        found_K = self._bm25.search([words], HITS + 1)[0][0] if words.strip() else np.empty(0, np.int32)
        others = [hit for hit in found_K.tolist() if hit >= 0 and hit != row and hit not in before]
        return list(self._shown(np.array(before + others[:HITS], dtype=np.int64), set(before)))

    def _shown(self, rows_K: NDArray[np.int64], ticked: set[int]) -> Iterator[Shown]:
        if len(rows_K):
            table = self.corpus.passages_at(rows_K, "passage_id", "title", "text")
            for row, id, title, text in zip(rows_K.tolist(), *(table[name] for name in table)):
                yield Shown(id, title, text, row in ticked)


def make_server(labelling: Labelling, port: int) -> ThreadingHTTPServer:
    """A server of the page on this machine alone; port 0 picks a free one. Raises `InputError` for a port in use."""
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            place = urlsplit(self.path)
            if self._may() and place.path == "/":
                self._answer(200, lambda: labelling.page(_fields(place.query)))
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if not self._may() or not 0 <= length <= MOST_BYTES:
                self.send_error(403)
                return
            fields = _fields(self.rfile.read(length).decode("utf-8", errors="replace"))
            with lock:
                error = labelling.save(fields)
            if error:
                self._answer(422, lambda: labelling.page(fields, error))
            else:
                self.send_response(303)
                self.send_header("Location", "/")
                self.end_headers()

        def _may(self) -> bool:
            """Whether the request is this page's own, and not that of another site in the same browser."""
            hosts = {f"{name}:{server.server_port}" for name in (HOST, "localhost")}
            own = {f"http://{host}" for host in hosts}
            return self.headers.get("Host") in hosts and self.headers.get("Origin") in {None, *own}

        def _answer(self, status: int, page: Any) -> None:
            with lock:
                content = page().encode("utf-8", errors="replace")
            self.send_response(status)
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *values: object) -> None:
            pass

    try:
        server = ThreadingHTTPServer((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        raise InputError(f"cannot listen on {HOST}:{port} ({error}); choose another --port") from None
    return server


def _fields(text: str) -> dict[str, list[str]]:
    return parse_qs(text, keep_blank_values=True)
