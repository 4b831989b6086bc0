"""Canary queries: test queries whose ranking the release's own run holds, asked again before the release answers.

Digests show that the files are those that were released. They cannot show that a model computes here what it computed
there: another processor, another version of a library, a broken kernel. The canaries show that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError

MOST = 16
"""Canaries of a release: the first queries of its run."""
DEPTH = 10
"""Passages that are compared."""
LEAST_OVERLAP = 0.8
"""Below it a release is refused. The vectors of another processor swap passages that are nearly equal, which costs a
few hundredths; a model that is not the one of the run finds hardly any of the passages."""
Ask = Callable[[Sequence[str], int], Sequence[Sequence[str]]]
"""Texts of queries and a depth in, the ids of the first passages of each out."""


@dataclass(frozen=True)
class Canary:
    """A query, and the ids of its passages in the release's run, best first."""

    text: str
    expected: tuple[str, ...]


def read_canaries(run: Path, corpus: Corpus) -> list[Canary]:
    """The canaries of the run that `retrieve` wrote: of its test queries, or of dev where there is no test query.

    Raises `InputError` for a run of queries that the corpus does not hold.
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
    """The first rankings of a run file, whose queries stand one after the other; the rest is not read."""
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
        raise InputError(f"{path} is no run of `stillhouse retrieve`; fetch the release again") from None
    return found


def average_overlap(expected: Sequence[str], found: Sequence[str]) -> float:
    """The mean, over the depths 1, 2, … of `expected`, of the share of passages that both rankings hold down to there.

    1 for the same ranking, 0 for two without a passage in common. Fagin, Kumar & Sivakumar, SODA 2003, §3.
    """
    shares = [len({*expected[:depth]} & {*found[:depth]}) / depth for depth in range(1, len(expected) + 1)]
    return sum(shares) / len(shares)


def refuse_failing(release: str, canaries: Sequence[Canary], ask: Ask) -> float:
    """Asks the canaries of a release and returns their mean overlap.

    Raises `InputError` where it is below `LEAST_OVERLAP`.
    """
    rankings = ask([canary.text for canary in canaries], DEPTH)
    overlaps = [average_overlap(canary.expected, found) for canary, found in zip(canaries, rankings)]
    mean = sum(overlaps) / len(overlaps)
    if mean < LEAST_OVERLAP:
        raise InputError(
            f"release {release} fails its canary queries: the first {DEPTH} passages of {len(overlaps)} of its "
            f"own queries agree with its run to {mean:.0%}, and {LEAST_OVERLAP:.0%} is asked for; its model computes "
            "something else on this machine than where it was released, so serve another release, or make its run "
            "anew here with `stillhouse retrieve`"
        )
    return mean
