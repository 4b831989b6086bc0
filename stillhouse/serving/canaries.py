"""Canary queries: test queries with known rankings from the release's own run, asked again before the release answers.

Digests show that the files are the released ones. They cannot show that a model computes the same here: another
processor, another version of a library or a broken kernel may change the result. The canaries show that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError

MOST = 16
"""The number of canaries of a release: the first queries of its run."""
DEPTH = 10
"""How many passages are compared."""
LEAST_OVERLAP = 0.8
"""A release with less is refused. The vectors of another processor swap nearly equal passages, which costs a few
hundredths; a model other than that of the run finds hardly any of the passages."""
Ask = Callable[[Sequence[str], int], Sequence[Sequence[str]]]
"""Maps the texts of queries and a depth to the ids of the first passages of each."""


def read_canaries(run: Path, corpus: Corpus) -> list[tuple[str, list[str]]]:
    """The texts of queries, with the ids of their passages in the run that `retrieve` wrote, best first: of its test
    queries, or of dev if there are no test queries."""
    for split in ("test", "dev"):
        path = run / f"{split}.trec"
        found: dict[str, list[str]] = {}
        if not path.is_file():
            continue
        with path.open(encoding="utf-8") as lines:
            for line in lines:  # queries follow one another; the rest is not read
                query_id, _, passage_id = line.split()[:3]
                if query_id not in found and len(found) == MOST:
                    break
                found.setdefault(query_id, []).append(passage_id)
        texts = corpus.queries_of(split).set_index("query_id")["text"]
        return [(texts[query_id], ids[:DEPTH]) for query_id, ids in found.items()]
    return []


def average_overlap(expected: Sequence[str], found: Sequence[str]) -> float:
    """The mean, over the depths 1, 2, … of `expected`, of the share of passages that both rankings have down to there.

    1 for equal rankings, 0 for two without a common passage. Fagin, Kumar & Sivakumar, SODA 2003, §3.
    """
    shares = [len({*expected[:depth]} & {*found[:depth]}) / depth for depth in range(1, len(expected) + 1)]
    return sum(shares) / len(shares)


def refuse_failing(release: str, canaries: Sequence[tuple[str, Sequence[str]]], ask: Ask) -> float:
    """Asks the canaries of a release and returns their mean overlap.

    Raises `InputError` if it is below `LEAST_OVERLAP`.
    """
    rankings = ask([text for text, _ in canaries], DEPTH)
    mean = sum(average_overlap(ids, found) for (_, ids), found in zip(canaries, rankings)) / len(canaries)
    if mean < LEAST_OVERLAP:
        raise InputError(
            f"release {release} fails its canary queries: the first {DEPTH} passages of {len(canaries)} of its own "
            f"queries agree with its run to {mean:.0%}, and at least {LEAST_OVERLAP:.0%} is required. Its model gives "
            "different results here than where it was released: serve another release, or make its run again here "
            "with `stillhouse retrieve`"
        )
    return mean
