"""Canary queries: test queries with known rankings from the release's own run, asked again before the release answers.

Digests show that the files are the released ones. They cannot show that a model computes the same here: another
processor, another version of a library or a broken kernel may change the result. The canaries show that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Canary:
    """A query, and the ids of its passages in the release's run, best first."""

    text: str
    expected: tuple[str, ...]


def read_canaries(run: Path, corpus: Corpus) -> list[Canary]:
    """The canaries from the run that `retrieve` wrote: of its test queries, or of dev if there are no test queries.

    Raises `InputError` for a run with queries that the corpus does not hold.
    """
    for split in ("test", "dev"):
        rankings = _first_rankings(run / f"{split}.trec")
        if not rankings:
            continue
        queries = corpus.queries_of(split)
        text_of = dict(zip(queries["query_id"], queries["text"]))
        if unknown := [id for id in rankings if id not in text_of]:
            raise InputError(f"{run} ranks the {split} query {unknown[0]!r}, which the corpus does not hold")
        return [Canary(text_of[id], tuple(ids)) for id, ids in rankings.items()]
    return []


def _first_rankings(path: Path) -> dict[str, list[str]]:
    """The first rankings of a run file, in which queries follow one another; the rest is not read."""
    found: dict[str, list[str]] = {}
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                query_id, _, passage_id, _, _, _ = line.split()
                if query_id not in found and len(found) == MOST:
                    break
                ids = found.setdefault(query_id, [])
                if len(ids) < DEPTH:
                    ids.append(passage_id)
    except FileNotFoundError:
        return {}
    except ValueError:
        raise InputError(f"{path} is not a run of `stillhouse retrieve`; fetch the release again") from None
    return found


def average_overlap(expected: Sequence[str], found: Sequence[str]) -> float:
    """The mean, over the depths 1, 2, … of `expected`, of the share of passages that both rankings have down to there.

    1 for equal rankings, 0 for two without a common passage. Fagin, Kumar & Sivakumar, SODA 2003, §3.
    """
    shares = [len({*expected[:depth]} & {*found[:depth]}) / depth for depth in range(1, len(expected) + 1)]
    return sum(shares) / len(shares)


def refuse_failing(release: str, canaries: Sequence[Canary], ask: Ask) -> float:
    """Asks the canaries of a release and returns their mean overlap.

    Raises `InputError` if it is below `LEAST_OVERLAP`.
    """
    rankings = ask([canary.text for canary in canaries], DEPTH)
    overlaps = [average_overlap(canary.expected, found) for canary, found in zip(canaries, rankings)]
    mean = sum(overlaps) / len(overlaps)
    if mean < LEAST_OVERLAP:
        raise InputError(
            f"release {release} fails its canary queries: the first {DEPTH} passages of {len(overlaps)} of its "
            f"own queries agree with its run to {mean:.0%}, and at least {LEAST_OVERLAP:.0%} is required. Its model "
            "gives different results here than where it was released: serve another release, or make its run again "
            "here with `stillhouse retrieve`"
        )
    return mean
