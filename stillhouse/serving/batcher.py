"""The thread that computes: it takes as much of the queue at once as fits into a batch of tokens.

A single client never waits for others: a batch holds the requests that arrived while the previous one was computed.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillhouse.serving.release import Found, Ranked, Release
from stillhouse.serving.settings import Limits


class QueueFull(Exception):
    """The queue is so long that a new request would miss its deadline."""


class TooLate(Exception):
    """The deadline passed before there was an answer."""


class Ended(Exception):
    """The service is shutting down and accepts no more work."""


@dataclass(frozen=True)
class Embedded:
    """Vectors float32 [Q, D], and the number of tokens read."""

    vectors: NDArray[np.float32]
    tokens: int


@dataclass(eq=False)
class Job:
    """Texts of one client's request, answered by one release.

    The result is `Embedded`; with `asked`, it is a list of `Found`, and with `alone`, what this function returns, which
    is called by itself.
    """

    release: Release
    texts: Sequence[str]
    role: str = "query"
    asked: Sequence[Ranked] | None = None
    alone: Callable[[], Any] | None = None
    result: Future[Any] = field(default_factory=Future)
    until: float = 0.0
    ids: list[list[int]] = field(default_factory=list)

    @property
    def late(self) -> bool:
        """Whether its deadline has passed or its client has left, so that nobody waits for the result."""
        return self.result.done() or time.monotonic() > self.until

    def finish(self, value: Any) -> None:
        with suppress(InvalidStateError):  # the client has gone
            self.result.set_result(value)

    def fail(self, error: BaseException) -> None:
        with suppress(InvalidStateError):
            self.result.set_exception(error)


class Batcher:
    """Computes jobs in order of arrival; those of the same release and role are computed together.

    `seen(texts, tokens)` is called for every batch.
    """

    def __init__(self, limits: Limits, seen: Callable[[int, int], None] = lambda texts, tokens: None) -> None:
        self._limits, self._seen = limits, seen
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition()
        self._over = False
        self.waiting = 0
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Future[Any]:
        """Puts a job into the queue. Raises `QueueFull` if there is no room, and `Ended` after `end`.

        The future raises `TooLate`, or the `InputError` of the release.
        """
        with self._changed:
            if self._over:
                raise Ended
            if self.waiting and self.waiting + len(job.texts) > self._limits.waiting:
                raise QueueFull
            job.until = time.monotonic() + self._limits.deadline
            self.waiting += len(job.texts)
            self._queue.append(job)
            self._changed.notify()
        return job.result

    def end(self) -> None:
        """Answers all waiting jobs, and ends the thread."""
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while jobs := self._take():
            try:
                self._compute(jobs)
            except Exception as error:
                for job in jobs:
                    job.fail(error)
            finally:
                with self._changed:
                    self.waiting -= sum(len(job.texts) for job in jobs)

    def _take(self) -> list[Job]:
        """The jobs of the next batch, at least one and as many as its tokens allow. Empty at the end."""
        with self._changed:
            while not self._queue and not self._over:
                self._changed.wait()
            waiting = list(self._queue)
        jobs: list[Job] = []
        tokens = 0
        for job in waiting:  # tokenized outside the lock, so that nobody waits to submit a job
            if jobs and not _together(jobs[0], job):
                break
            if job.late:
                job.fail(TooLate())
            elif job.alone is None and not job.ids:
                try:
                    job.ids = job.release.tokenize(job.texts, job.role)
                except Exception as error:
                    job.fail(error)
            tokens += sum(map(len, job.ids))
            if jobs and tokens > self._limits.batch_tokens:
                break
            jobs.append(job)
        with self._changed:
            for _ in jobs:
                self._queue.popleft()
        return jobs

    def _compute(self, jobs: Sequence[Job]) -> None:
        live = [job for job in jobs if not job.result.done()]
        if not live:
            return
        first = live[0]
        if first.alone is not None:
            self._seen(len(first.texts), 0)
            first.finish(first.alone())
            return
        ids = [each for job in live for each in job.ids]
        made = []
        for part in in_parts(ids, self._limits.batch_tokens):
            if all(job.late for job in live):  # otherwise the rest of a large job would delay others
                for job in live:
                    job.fail(TooLate())
                return
            self._seen(len(part), sum(map(len, part)))
            made.append(first.release.encode(part, first.role))
        vectors_QD = np.concatenate(made)
        begin, ranking = 0, []
        for job in live:
            part_QD = vectors_QD[begin : begin + len(job.texts)]
            begin += len(job.texts)
            if job.asked is None:
                job.finish(Embedded(part_QD, sum(map(len, job.ids))))
            else:
                ranking.append((job, part_QD))
        if ranking:
            texts = [text for job, _ in ranking for text in job.texts]
            asked = [how for job, _ in ranking for how in job.asked or ()]
            found: list[Found] = first.release.rank(texts, np.concatenate([part for _, part in ranking]), asked)
            for job, _ in ranking:
                job.finish([found.pop(0) for _ in job.texts])


def in_parts(ids: Sequence[list[int]], most_tokens: int) -> list[list[list[int]]]:
    """Splits tokenized texts, at least one, into parts of at most `most_tokens`; a longer text is its own part."""
    parts: list[list[list[int]]] = [[]]
    tokens = 0
    for each in ids:
        if parts[-1] and tokens + len(each) > most_tokens:
            parts.append([])
            tokens = 0
        parts[-1].append(each)
        tokens += len(each)
    return parts


def _together(first: Job, job: Job) -> bool:
    """Whether two jobs can be computed together."""
    alike = (job.release, job.role) == (first.release, first.role)
    return alike and first.alone is None and job.alone is None
