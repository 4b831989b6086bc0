"""Zero-shot figures as one self-contained HTML page: no scripts, no external resources, everything escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.pages import page_template
from stillhouse.evaluation.figures import cell
from stillhouse.evaluation.report.page import count, p_value, signed
from stillhouse.evaluation.significance import SIGNIFICANT
from stillhouse.experiments.zero_shot.figures import OneCorpus, Settings, average, best_on, by_group


def render(corpora: Sequence[OneCorpus], failed: Mapping[str, str], settings: Settings, title: str) -> str:
    """The page as text; equal figures give equal text. `failed` maps a corpus without figures to the reason."""
    template = page_template(Path(__file__).with_name("zero_shot.html"), signed=signed, p_value=p_value, count=count)
    first = corpora[0].measured
    means, wins, main = average(corpora), best_on(corpora), first.measures[0]
    return template.render(
        title=title,
        systems=first.systems,
        settings=settings,
        main=main,
        best=max(first.systems, key=lambda system: means[system][main]),
        average=means,
        best_on=wins,
        tables=[(measure, [_row(corpus, measure) for corpus in corpora]) for measure in first.measures],
        groups=_groups(corpora),
        queries=sum(corpus.measured.queries for corpus in corpora),
        corpora=len(by_group(corpora)),
        failed=failed,
        own_passages={corpus.name: corpus.own_passages for corpus in corpora if corpus.own_passages},
        significant=SIGNIFICANT,
    )


def _groups(corpora: Sequence[OneCorpus]) -> list[dict[str, Any]]:
    """The groups of several corpora: name, members' names and the systems' means."""
    members: dict[str, list[str]] = {}
    for corpus in corpora:
        members.setdefault(corpus.group, []).append(corpus.name)
    means = by_group(corpora)
    return [{"name": name, "members": of, "means": means[name]} for name, of in members.items() if of != [name]]


def _row(corpus: OneCorpus, measure: str) -> dict[str, Any]:
    means = {system: of[measure] for system, of in corpus.measured.means().items()}
    best, change = max(means.values()), {system: of.get(measure) for system, of in corpus.comparisons.items()}
    cells = [
        cell(mean, corpus.intervals[system][measure], mean == best, change.get(system))
        for system, mean in means.items()
    ]
    return {
        "name": corpus.name,
        "queries": int(corpus.measured.judged(measure).sum()),
        "passages": corpus.passages,
        "cells": cells,
    }
