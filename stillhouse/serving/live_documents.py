"""Documents that are searched alongside a release's passages until a refresh adds them.

Every open release has their vectors from its own model. `Release.live` is the release with the documents. It is
replaced as a whole, so a request sees all of a change or none of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillhouse.corpus.titles import passage_text
from stillhouse.errors import is_full_disk
from stillhouse.serving.batcher import Embedded, Job, in_parts
from stillhouse.serving.document_log import Document, DocumentLog, LogBroken, Record, replayed
from stillhouse.serving.errors import Problem
from stillhouse.serving.live_index import SAMPLE, LiveBM25, LiveIndex, LivePassages
from stillhouse.serving.release import Release
from stillhouse.serving.settings import Limits

Submit = Callable[[Job], "Future[Any]"]
AGAIN = {"Retry-After": "1"}


class LiveDocuments:
    """The documents of a log in `folder`. Raises `InputError` as `DocumentLog` does."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._log, self._limits = DocumentLog(folder), limits
        self.torn = self._log.torn
        self._known = replayed(self._log.records)
        self._lock = threading.Lock()

    def counts(self) -> dict[str, int]:
        """The content of `/info`."""
        documents = sum(each is not None for each in self._known.values())
        return {"documents": documents, "deleted": len(self._known) - documents, "log_bytes": self._log.size}

    def prepare(self, release: Release) -> Release:
        """The release, before it is used, with all documents encoded by its own model."""
        self._catch_up(release)
        return release

    @contextmanager
    def placing(self, release: Release) -> Iterator[None]:
        """During the block, the release has all documents and none is added."""
        with self._lock:
            self._catch_up(release)
            yield

    def _catch_up(self, release: Release) -> None:
        """Encodes documents added since a release was prepared. Only for a release that is not in use yet, or lacks
        none."""
        known = self._known
        if not known and release.live is None:
            return
        had = release.live_vectors
        new = [each for id, each in known.items() if each is not None and (id not in had or had[id][0] is not each)]
        if release.live is not None and not new and release.live_ids == known.keys():
            return
        vectors_MD = np.empty((0, release.index.width), np.float32)
        if new:
            vectors_MD = _encoded(release, new, self._limits.batch_tokens)
        _Change(release, known, new, vectors_MD).publish()

    def write(
        self,
        open_releases: Callable[[], Sequence[Release]],
        put: Sequence[Document],
        delete: Sequence[str],
        submit: Submit,
    ) -> dict[str, int]:
        """Adds, replaces and deletes, all or nothing; returns once the change is on the disk and every release finds
        it.

        `open_releases` returns the one in use first; `submit` is the batcher's. Raises `Problem`, and what `submit`
        raises.
        """
        if not self._lock.acquire(timeout=self._limits.deadline):
            raise Problem(503, "other documents are being added, or a release is being replaced; try again", AGAIN)
        try:
            releases = open_releases()
            record = {"put": list(put), "delete": list(delete)}
            known = dict(self._known)
            known.update(replayed([record]))
            self._refuse_too_much(known, record)
            if missing := [id for id in delete if self._known.get(id) is None and not self._in(releases[0], id)]:
                raise Problem(404, f"there is no document {missing[0][:80]!r}; nothing was deleted")
            changes = [
                _Change(release, known, put, _vectors(release, put, submit, self._limits.deadline))
                for release in releases
            ]
            self._append(record)
            self._known = known
            for change in changes:
                change.publish()
            return self.counts()
        finally:
            self._lock.release()

    def _in(self, release: Release, id: str) -> bool:
        return id not in self._known and bool(len(release.passages.rows_of([id])))

    def _refuse_too_much(self, known: Mapping[str, Document | None], record: Record) -> None:
        remedy = "release them (`stillhouse refresh --documents`) and start with an empty folder"
        if len(known) > self._limits.documents:
            raise Problem(507, f"at most {self._limits.documents:,} documents and deletions are kept; {remedy}")
        size = self._log.size + sum(len(str(value).encode()) for value in record.values())
        if size > self._limits.documents_bytes:
            raise Problem(507, f"the log of documents is limited to {self._limits.documents_bytes:,} bytes; {remedy}")

    def _append(self, record: Record) -> None:
        try:
            self._log.append(record)
        except LogBroken:
            message = "the log of documents cannot be written until the service is restarted; nothing was changed"
            raise Problem(503, message) from None
        except OSError as error:
            if is_full_disk(error):
                raise Problem(
                    507, "the disk is full, and nothing was changed; free some space and send it again"
                ) from None
            message = f"the log of documents cannot be written ({error.strerror}), and nothing was changed; try again"
            raise Problem(503, message) from None

    def close(self) -> None:
        self._log.close()


class _Change:
    """A release's view of documents, prepared so that `publish` cannot fail."""

    def __init__(
        self,
        release: Release,
        known: Mapping[str, Document | None],
        new: Sequence[Document],
        vectors_MD: NDArray[np.float32],
    ) -> None:
        self._release, self._ids = release, frozenset(known)
        made = {each["passage_id"]: (each, vector_D) for each, vector_D in zip(new, vectors_MD)}
        documents = [each for each in known.values() if each is not None]
        both = release.live_vectors | made
        self._vectors = {each["passage_id"]: both[each["passage_id"]] for each in documents}
        hidden_H = release.passages.rows_of(list(known))
        live_MD = np.array([vector_D for _, vector_D in self._vectors.values()], np.float32)
        live_MD = live_MD.reshape(len(documents), release.index.width)
        bm25 = None
        if release.bm25 is not None:
            if release.mean_length is None:
                release.mean_length = _mean_length(release)
            texts = [_text(release, each) for each in documents]
            bm25 = LiveBM25(release.bm25, hidden_H, texts, release.mean_length)
        self._live = release.beside(
            LiveIndex(release.index, hidden_H, live_MD), bm25, LivePassages(release.passages, hidden_H, documents)
        )

    def publish(self) -> None:
        self._release.live_vectors, self._release.live_ids = self._vectors, self._ids
        self._release.live = self._live


def _text(release: Release, document: Document) -> str:
    return passage_text(document["title"], document["text"], release.titles)


def _encoded(release: Release, documents: Sequence[Document], batch_tokens: int) -> NDArray[np.float32]:
    """Encodes batch by batch: all documents of a log at once would need too much memory."""
    ids = release.tokenize([_text(release, each) for each in documents], "passage")
    return np.concatenate([release.encode(part, "passage") for part in in_parts(ids, batch_tokens)])


def _vectors(release: Release, documents: Sequence[Document], submit: Submit, seconds: float) -> NDArray[np.float32]:
    """Vectors from the thread that computes for all clients."""
    if not documents:
        return np.empty((0, release.index.width), np.float32)
    made: Embedded = submit(Job(release, [_text(release, each) for each in documents], "passage")).result(seconds)
    return made.vectors


def _mean_length(release: Release) -> float:
    """The mean number of words of the release's passages, or of an evenly spaced sample of them."""
    assert release.bm25 is not None
    count = len(release.passages)
    rows = np.unique(np.linspace(0, count - 1, min(count, SAMPLE)).astype(np.int64)).tolist()
    texts = [
        passage_text(each["title"], each["text"], release.titles) for each in release.passages.at(rows, "title", "text")
    ]
    return float(np.mean([len(words) for words in release.bm25.words(texts)]))
