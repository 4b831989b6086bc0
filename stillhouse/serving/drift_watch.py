"""Watches, on a separate thread, whether client queries still look like the release's own test queries.

The reference is the release's test queries, ranked by the release once, like client queries. Of the client queries, the
last `WINDOW` vectors and best scores are kept in memory, but no text. Queries with a filter, or with another ranking
than the release chose, are left out, because their scores are not comparable.

Vectors and best scores are each compared by a two-sample Kolmogorov-Smirnov test from scipy. The statistic is the
largest difference between the shares of the two samples below a value: 0 for equal samples, 1 for samples that do not
overlap. Vectors are compared along random directions. Directions fitted to one sample, such as its principal
components, would make it differ from any other.

Shape suffixes: Q queries, R reference queries, A asked queries, D width, K directions.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stillhouse.serving.batcher import Job
from stillhouse.serving.release import Found, Ranked, Release

WINDOW, REFERENCE, LEAST = 500, 256, 100
"""The number of client queries to compare, of test queries to compare them with, and the minimum of each."""
EVERY = 15.0
"""Seconds between two checks."""
AT_ONCE = 8
"""Test queries that enter the queue at once, among those of clients."""
PATIENCE = 60.0
DIRECTIONS = 8
SURE = 0.001
"""A smaller p-value counts as a difference. The window is tested again and again, so 0.05 would be too large."""
Submit = Callable[[Job], "Future[Any]"]


class Shift(NamedTuple):
    """The distance of two samples, from 0 to 1, and its p-value."""

    statistic: float
    p: float

    @property
    def sure(self) -> bool:
        return self.p < SURE


def score_shift(reference_R: NDArray[np.float32], asked_A: NDArray[np.float32]) -> Shift:
    """The test of the best scores, float32 [R] and [A]."""
    from scipy.stats import ks_2samp

    found = ks_2samp(reference_R, asked_A, method="asymp")
    return Shift(float(found.statistic), float(found.pvalue))


def query_shift(reference_RD: NDArray[np.float32], asked_AD: NDArray[np.float32], seed: int = 0) -> Shift:
    """The test of vectors, float32 [R, D] and [A, D]: the largest statistic over all directions.

    The p-value is the smallest one times the number of directions (Bonferroni), so that it holds for all together.
    """
    width = reference_RD.shape[1]
    directions_DK = np.random.default_rng(seed).standard_normal((width, DIRECTIONS)).astype(np.float32)
    reference_KR, asked_KA = (reference_RD @ directions_DK).T, (asked_AD @ directions_DK).T
    found = [score_shift(reference_R, asked_A) for reference_R, asked_A in zip(reference_KR, asked_KA)]
    return Shift(max(each.statistic for each in found), min(1.0, DIRECTIONS * min(each.p for each in found)))


@dataclass(frozen=True)
class Sample:
    """Vectors float32 [Q, D] and the best score of each, float32 [Q]."""

    vectors: NDArray[np.float32]
    scores: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.scores)


def _sample(rows: Sequence[tuple[NDArray[np.float32], float]]) -> Sample:
    """Counts each question once: the same one from many clients adds nothing new."""
    if not rows:
        return Sample(np.empty((0, 0), np.float32), np.empty(0, np.float32))
    vectors_QD, first = np.unique(np.stack([vector for vector, _ in rows]), axis=0, return_index=True)
    return Sample(vectors_QD, np.array([score for _, score in rows], np.float32)[first])


@dataclass(frozen=True)
class Drift:
    """The result of a check of `asked` and `reference` queries of a release; without shifts if there are too few."""

    release: str
    asked: int
    reference: int
    queries: Shift | None = None
    scores: Shift | None = None

    @property
    def sentence(self) -> str:
        if self.reference < LEAST:
            return f"the release has {self.reference} test and dev queries, but a comparison needs {LEAST}"
        if self.queries is None or self.scores is None:
            return f"{self.asked} different questions were asked, but a comparison needs {LEAST}"
        apart = [name for name, found in (("questions", self.queries), ("best scores", self.scores)) if found.sure]
        if not apart:
            return "questions and best scores look like those of the release's test queries"
        return f"the {' and the '.join(apart)} differ from those of the release's test queries; a refresh may be due"


class DriftWatch:
    """Compares the queries given to `note` with the test queries of the release that `current` returns.

    `submit` is the batcher's; `log` gets a line if a check fails.
    """

    def __init__(
        self, current: Callable[[], Release], submit: Submit, log: Callable[[str], None], every: float = EVERY
    ) -> None:
        self._current, self._submit, self._log, self._every = current, submit, log, every
        self._asked: deque[tuple[str, NDArray[np.float32], float]] = deque(maxlen=WINDOW)
        self._reference: tuple[str, Sample] | None = None
        self._noted = self._looked = 0
        self._over = threading.Event()
        self.found: Drift | None = None
        self._thread: threading.Thread | None = None

    def note(self, release: Release, vectors_QD: NDArray[np.float32], found: Sequence[Found], how: Ranked) -> None:
        """Records queries that a release answered. It must be quick, since it delays the answer."""
        if how.bm25 is not None or how.id_prefix or how.article:
            return
        for vector_D, each in zip(vectors_QD, found):
            if each.scores:
                self._asked.append((release.name, vector_D.copy(), each.scores[0]))
                self._noted += 1

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="drift", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._over.wait(self._every):
            try:
                self.look()
            except Exception as error:  # a full queue or a replaced release: the next check may succeed
                self._log(f"the drift of queries could not be measured: {type(error).__name__} {error}")

    def look(self) -> None:
        """Compares the queries up to now; does nothing if there are no new ones."""
        release = self._current()
        noted = self._noted
        if self.found and self.found.release == release.name and noted == self._looked:
            return
        if self._reference is None or self._reference[0] != release.name:
            self._reference = release.name, self._rank(release)
        reference = self._reference[1]
        asked = _sample([(vector, score) for name, vector, score in list(self._asked) if name == release.name])
        found = Drift(release.name, len(asked), len(reference))
        if min(len(asked), len(reference)) >= LEAST:
            shifts = query_shift(reference.vectors, asked.vectors), score_shift(reference.scores, asked.scores)
            found = Drift(release.name, len(asked), len(reference), *shifts)
        self.found, self._looked = found, noted

    def _rank(self, release: Release) -> Sample:
        """Ranks the release's own queries like those of clients, a few at a time in between."""
        texts = release.own_queries(REFERENCE)
        rows: list[tuple[NDArray[np.float32], float]] = []
        for begin in range(0, len(texts), AT_ONCE):
            part = texts[begin : begin + AT_ONCE]
            job = Job(release, part, "query", [Ranked()] * len(part))
            found: list[Found] = self._submit(job).result(PATIENCE)
            assert job.vectors is not None, "the vectors of a job that is done"
            rows += [(vector_D, each.scores[0]) for vector_D, each in zip(job.vectors, found) if each.scores]
            if self._over.is_set():
                break
        return _sample(rows)

    def gauges(self) -> dict[str, tuple[str, Callable[[], float]]]:
        """The figures for Prometheus, name → description and how to read it; NaN if there is none yet."""

        def read(kind: str, field: str) -> Callable[[], float]:
            return lambda: float(getattr(getattr(self.found, kind, None), field, float("nan")))

        apart, chance = "how far apart they are, from 0 to 1", "the p-value of that distance"
        return {
            "query_drift": (f"Queries and the release's test queries: {apart}", read("queries", "statistic")),
            "query_drift_p": (f"Queries and the release's test queries: {chance}", read("queries", "p")),
            "score_drift": (f"Best scores and those of the test queries: {apart}", read("scores", "statistic")),
            "score_drift_p": (f"Best scores and those of the test queries: {chance}", read("scores", "p")),
        }

    def about(self) -> dict[str, Any] | None:
        """The content of `/info`."""
        found = self.found
        if found is None:
            return None
        shifts = {
            name: {"statistic": shift.statistic, "p": shift.p} if shift else None
            for name, shift in (("queries", found.queries), ("scores", found.scores))
        }
        return {"asked": found.asked, "reference": found.reference, **shifts, "sentence": found.sentence}
