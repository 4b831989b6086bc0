"""How long training or encoding waits for its data: reading texts, drawing groups, tokens, tensors.

The methods that produce these are timed during normal calls. If another thread works ahead, or a GPU computes
meanwhile, the actual wait is shorter.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock


class Waiting:
    """Adds up the seconds of timed methods. One that another calls counts once."""

    def __init__(self) -> None:
        self._by_thread: defaultdict[int, float] = defaultdict(float)
        self._main = threading.get_ident()
        self._within = threading.local()

    def seconds(self) -> float:
        """Those of the thread that made this and, where batches are made by several, the longest of theirs."""
        others = [spent for thread, spent in self._by_thread.items() if thread != self._main]
        return self._by_thread[self._main] + max(others, default=0.0)

    def timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*given: Any, **named: Any) -> Any:
            if getattr(self._within, "yes", False):
                return method(*given, **named)
            self._within.yes = True
            started = time.perf_counter()
            try:
                return method(*given, **named)
            finally:
                self._by_thread[threading.get_ident()] += time.perf_counter() - started
                self._within.yes = False

        return call

    @contextmanager
    def of(self, *methods: tuple[type, str]) -> Iterator[None]:
        """While this is open, calls of these methods, each of a class, are timed."""
        with ExitStack() as stack:
            for owner, name in methods:
                stack.enter_context(mock.patch.object(owner, name, self.timed(getattr(owner, name))))
            yield


def of_retriever() -> list[tuple[type, str]]:
    """What a retriever's training waits for before a step's vectors."""
    from stillhouse.corpus.table_file import TextFile
    from stillhouse.models.encoder import BiEncoder, TokenizedTexts
    from stillhouse.training.groups import GroupSampler
    from stillhouse.training.teacher import TeacherScores

    return [
        (GroupSampler, "draw"),
        (GroupSampler, "relevant"),
        (TeacherScores, "of"),
        (TextFile, "__getitem__"),
        (BiEncoder, "texts"),
        (TokenizedTexts, "batch"),
    ]


def of_reranker() -> list[tuple[type, str]]:
    """What a re-ranker's training waits for before a step's scores, and teacher scoring before a batch's."""
    from stillhouse.corpus.table_file import TextFile
    from stillhouse.models.cross_encoder import CrossEncoder
    from stillhouse.models.pair_scores import PairTexts
    from stillhouse.training.groups import GroupSampler

    return [(GroupSampler, "draw"), (TextFile, "__getitem__"), (CrossEncoder, "pairs"), (PairTexts, "batch")]


def of_encoding() -> list[tuple[type, str]]:
    """What encoding waits for: texts written to a temporary file and read back, tokens, tensors."""
    from stillhouse.corpus.table_file import TextFile
    from stillhouse.models.encoder import BiEncoder, TokenizedTexts

    made = [(TextFile, "__init__"), (TextFile, "__getitem__")]
    return [*made, (BiEncoder, "texts"), (TokenizedTexts, "batch")]
