"""Forecasts the time of a run from a first look at its source."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stillhouse.core.monitoring.activity import by_stage, in_words
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.recipes import Recipe, configs
from stillhouse.pipeline.step_times import ON_GPU, Scale, mean_tokens, on_processor, seconds_of, weights_of

if TYPE_CHECKING:
    from stillhouse.corpus.first_look import FirstLook

FILLED = 0.7
"""The share of its tokens that a piece of a split passage has on average: 88 of 126 on SQuAD's articles."""
PAIRS_A_PASSAGE = 2
"""The approximate number of sentences per passage that become train queries if there are no others."""


@dataclasses.dataclass(frozen=True)
class Forecast:
    """The seconds of every step of a run. `more` if only part of the source was read."""

    seconds: Mapping[str, float]
    more: bool

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def lines(self) -> list[str]:
        """The time of the whole run, and in further lines that of its stages."""
        about = "more than" if self.more else "about"
        whole = f"the whole run takes {about} {in_words(self.total)} on this machine:"
        return [whole, *(f"  {line}" for line in by_stage(self.seconds))]


def forecast(recipe: Recipe, look: FirstLook | None) -> Forecast | None:
    """The time of a recipe's run on a source. None if `why_none` has a reason."""
    settings = configs(recipe, "recipe")
    if look is None or why_none(settings, look):
        return None
    scale = scale_of_look(settings, look)
    return Forecast(seconds_of(graph_of(recipe), settings, scale), not look.whole)


def why_none(settings: Mapping[str, Any], look: FirstLook | None = None) -> str:
    """Why a run's time cannot be predicted from its settings and a look at its source; empty if it can."""
    if not on_processor():
        return ON_GPU
    empty = look is not None and not look.lengths
    start = settings["fetch_model"]
    unknown = why_unseen(settings["ingest"]) or weights_of(start.model, start.layers)[1]
    return unknown or ("the source has no passages" if empty else "")


def why_unseen(ingest: Any) -> str:
    """Why a source cannot be inspected before `ingest` runs; empty if it can."""
    from stillhouse.corpus.sources.ir_datasets_id import SCHEME

    if ingest.repo:
        return "the source is in a git repository, from which `ingest` fetches it"
    return f"`ingest` downloads the source {ingest.source}" if ingest.source.startswith(SCHEME) else ""


def scale_of_look(settings: Mapping[str, Any], look: FirstLook) -> Scale:
    """What determines the time of a run, from a first look and the settings of `ingest` and `fetch_model`."""
    ingest, start = settings["ingest"], settings["fetch_model"]
    look = _split(_sampled(look, ingest.max_articles), ingest.split_tokens)
    tokens = mean_tokens(look.lengths, start.passage_length)
    weights, _ = weights_of(start.model, start.layers)
    return Scale(look.passages, _queries(ingest, look, settings.get("generated")), tokens, weights)


def _sampled(look: FirstLook, max_articles: int | None) -> FirstLook:
    """Approximately what a look at `max_articles` of the source's articles would show."""
    articles = look.all_articles
    if not max_articles or articles <= max_articles:
        return look
    share = max_articles / articles
    questions = {split: round(share * count) for split, count in look.questions.items()}
    return dataclasses.replace(look, passages=max(1, round(share * look.passages)), questions=questions)


def _split(look: FirstLook, tokens: int | None) -> FirstLook:
    """Approximately what a look at the source's passages would show after long ones were split."""
    if not tokens:
        return look
    pieces = [math.ceil(length / (FILLED * tokens)) if length > tokens else 1 for length in look.lengths]
    lengths = [length / count for length, count in zip(look.lengths, pieces) for _ in range(count)]
    passages = round(look.passages * len(lengths) / max(1, len(pieces)))
    return dataclasses.replace(look, passages=passages, lengths=tuple(map(round, lengths)))


def _queries(ingest: Any, look: FirstLook, generated: Any) -> dict[str, int]:
    """The number of queries in each split after `ingest`; `generated` asks about the passages if it is there."""
    names = ingest.splits or {}
    found = {names.get(split, split): count for split, count in look.questions.items()}
    if makes_pairs(ingest, look):
        made = PAIRS_A_PASSAGE * look.passages
        made = min(made, ingest.max_pair_queries or made)
        if generated:
            made = min(generated.max_passages or look.passages, look.passages) * generated.queries_per_passage
        dev, test = (int(made * share) for share in (ingest.heldout_dev_articles, ingest.heldout_test_articles))
        found = {"train": made - dev - test, "dev": dev, "test": test}
    else:
        own = set(found)
        for split, share in (("test", ingest.test_fraction), ("dev", ingest.dev_fraction)):
            others = {"dev", "test"} if split == "test" else {"dev"}
            if share and not own & others and found.get("train", 0) > 1:
                found[split] = min(max(round(found["train"] * share), 1), found["train"] - 1)
                found["train"] -= found[split]
    for split in ("train", "dev", "test"):
        count = found.get(split, 0)
        found[split] = min(count, getattr(ingest, f"max_{split}_queries") or count)
    return found


def makes_pairs(ingest: Any, look: FirstLook) -> bool:
    return bool(ingest.queries == "pairs" or (ingest.queries == "auto" and not look.labelled))
