"""The report as one self-contained HTML page: no scripts, no external resources, everything escaped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from stillhouse.core.artifacts import Manifest
from stillhouse.core.curves import DEV
from stillhouse.core.monitoring.activity import doing
from stillhouse.core.pages import page_template
from stillhouse.corpus.schemas import GENERATED
from stillhouse.corpus.settings import TASKS
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.figures import Measured, by_origin, cell
from stillhouse.evaluation.report.choice import START, Choice
from stillhouse.evaluation.report.curves import interval_plot, loss_plot, ranking_of
from stillhouse.evaluation.report.examples import example_queries, first_is_right, with_gold
from stillhouse.evaluation.report.teachers import Taught
from stillhouse.evaluation.samples import Samples
from stillhouse.evaluation.significance import SIGNIFICANT, Comparison
from stillhouse.evaluation.systems import about_system, about_training, short_name

ORIGINS = {
    "ict": "a sentence → a passage next to its own",
    "bfs": "a sentence of an article’s first section → a passage drawn from the rest of the article",
    "wlp": "a sentence of an article’s first section → a passage drawn from an article that links to it",
    GENERATED: "a question that a language model made from a passage → that passage",
}
"""How the queries of each origin were made, and the passage that answers one."""
VERBATIM = "a sentence → its own passage"
"""The text for `ict` in a corpus whose articles have one passage each."""
ADJECTIVES = ("zero_shot", "reranked", "distilled")
"""Systems with adjectives as names, which need a noun in a sentence."""
WINNER = "best"
"""The system that `select-best` chose."""
BEFORE = {"zero_shot_hybrid": "the base model with BM25", START: "the base model", "bm25": "BM25"}
"""What can be had without training, in words; without dev queries, the first of these that was run counts."""
NOT_A_RETRIEVER = ("bm25", "rerank", "")
"""Steps whose runs do not count as dense retrievers in the headline."""


@dataclass(frozen=True)
class Content:
    """The content of the page. `intervals` and `comparisons` are for the queries of `test`.

    `synthetic` are the generated test queries if `test` holds labelled ones. `made` maps a system to the manifest of
    its run, whose step is "" for a run of another tool, and whose facts have `choice` if `select-best` chose it.
    `cut_short` comes from `figures.cut_short` and `missing` from `figures.missing`. `teachers` maps a training to its
    teacher.
    """

    title: str
    corpus: Corpus
    corpus_facts: Mapping[str, Any]
    dev: Measured
    test: Measured
    synthetic: Measured | None
    intervals: Mapping[str, Mapping[str, list[float]]]
    comparisons: Mapping[tuple[str, str], Mapping[str, Comparison]]
    curves: Mapping[str, pd.DataFrame]
    examples: int
    samples: Samples
    made: Mapping[str, Manifest]
    cut_short: Mapping[str, Mapping[str, int]]
    missing: Mapping[str, int]
    teachers: Mapping[str, Taught]


@doing("drawing the report")
def render(content: Content) -> str:
    """The page as text; the same content gives the same text."""
    template = page_template(
        Path(__file__).with_name("page.html"),
        signed=signed,
        p_value=p_value,
        name=short_name,
        training=about_training,
        count=count,
    )
    test = content.test
    return template.render(
        vars(content),
        main=test.measures[0],
        headline=headline(content),
        with_gold=with_gold(content.corpus, test),
        right=first_is_right(content.corpus, test),
        rows=stage_rows(content),
        dots=Markup(_dots(content)),
        comparisons=[(pair, of[test.measures[0]]) for pair, of in content.comparisons.items()],
        trainings=[_training(name, curves) for name, curves in content.curves.items()],
        examples=example_queries(content.corpus, test, content.examples) if content.examples else [],
        judged=[(name, int(test.judged(name).sum())) for name in test.measures if not test.judged(name).all()],
        significant=SIGNIFICANT,
        synthetic=synthetic_part(content),
    )


def headline(content: Content) -> dict[str, Any]:
    """The winner of `select-best` against what there was before training, by the first measure on test.

    That is the best on dev of BM25, the base model and both together. Without such a winner it is the best retriever
    on dev, and without dev queries the last stage.
    """
    test, dev = content.test, content.dev
    measure, means = test.measures[0], test.means()
    dense = [system for system in test.systems if content.made[system].step not in NOT_A_RETRIEVER]
    retrievers = dense or test.systems
    dev_means = dev.means() if measure in dev.measures else {}
    on_dev = [system for system in retrievers if system in dev_means]  # another tool's run may have test queries alone
    leader = max(on_dev, key=lambda system: dev_means[system][measure]) if on_dev else retrievers[-1]
    best = WINNER if WINNER in retrievers else leader
    before = [system for system in BEFORE if system in test.systems and system != best]
    baseline = max(before, key=lambda system: dev_means.get(system, {measure: 0.0})[measure], default="")
    comparison = content.comparisons.get((best, baseline), {}).get(measure)
    turned = content.comparisons.get((baseline, best), {}).get(measure)
    comparison = comparison or (turned and turned.turned())
    difference = means[best][measure] - means[baseline][measure] if baseline else 0.0
    verdict = "better than" if difference > 0 else "worse than" if difference < 0 else "level with"
    if comparison and comparison.low <= 0 <= comparison.high:
        verdict = "not distinguishable from"
    elif not comparison and difference:
        verdict = "above" if difference > 0 else "below"  # untested, so no claim
    name = short_name(best)
    return {
        "best": best,
        "subject": f"The {name} retriever" if best in ADJECTIVES else name[0].upper() + name[1:],
        "baseline": baseline,
        "against": BEFORE.get(baseline, ""),
        "by_dev": bool(dev_means),
        "leads": bool(dev_means) and best == leader,
        "choice": choice_of(content, best),
        "value": means[best][measure],
        "baseline_value": means[baseline][measure] if baseline else 0.0,
        "difference": difference,
        "comparison": comparison,
        "verdict": verdict,
    }


def headline_sentence(content: Content) -> str:
    """The headline in a line for a log, with the 95 % interval of a tested difference; "" if nothing was compared.

    For instance "The winner is retriever 2 with BM25: RR@10 0.693 on 106 test queries, better than the base model with
    BM25 (0.662; difference +0.031, 0.001 to 0.061)".
    """
    found = headline(content)
    if not found["baseline"]:
        return ""
    choice, measure = found["choice"], content.test.measures[0]
    comparison = found["comparison"]
    bounds = f", {comparison.low:.3f} to {comparison.high:.3f}" if comparison else ""
    who = f"The winner is {choice.name}" if choice else found["subject"]
    return (
        f"{who}: {measure} {found['value']:.3f} on {content.test.queries:,} test queries, {found['verdict']} "
        f"{found['against']} ({found['baseline_value']:.3f}; difference {found['difference']:+.3f}{bounds})"
    )


def choice_of(content: Content, system: str) -> Choice | None:
    """How `select-best` chose a system, or None."""
    found = content.made[system].facts.get("choice")
    return Choice(**found) if found else None


def stage_rows(content: Content) -> list[dict[str, Any]]:
    """One row per system: mean, interval and difference to the previous stage in every measure, and the dev mean."""
    test, means = content.test, content.test.means()
    dev_means = content.dev.means() if test.measures[0] in content.dev.measures else {}
    best = {measure: max(values[measure] for values in means.values()) for measure in test.measures}
    rows, before = [], ""
    for system in test.systems:
        step, own = content.comparisons.get((system, before), {}), means[system]
        cells = [
            cell(own[measure], content.intervals[system][measure], own[measure] == best[measure], step.get(measure))
            for measure in test.measures
        ]
        dev_mean = dev_means[system][test.measures[0]] if system in dev_means else None
        choice = choice_of(content, system)
        text = f"{choice.name}, chosen on dev from {choice.systems} systems" if choice else about_system(system)
        rows.append({"system": system, "text": text, "before": before, "cells": cells, "dev": dev_mean})
        before = system
    return rows


def synthetic_part(content: Content) -> dict[str, Any] | None:
    """The figures on generated test queries: the first measure by task, and all measures if there are labelled ones."""
    made = content.test if content.test.synthetic else content.synthetic
    if made is None:
        return None
    origins, tasks = content.corpus.queries.set_index("query_id")["origin"], by_origin(content.corpus, made)
    judged = origins.reindex(next(iter(made.values.values())).index).value_counts()
    means = made.means()
    verbatim = bool(content.corpus_facts.get("verbatim", False))
    return {
        "queries": made.queries,
        "tasks": [
            (task, VERBATIM if verbatim and task == "ict" else text, int(judged[task]))
            for task, text in ORIGINS.items()
            if task in tasks
        ],
        "measures": made.measures if content.synthetic else made.measures[:1],
        "rows": [(system, means[system], {task: tasks[task][system] for task in tasks}) for system in made.systems],
        "verbatim": verbatim,
        "of_model": GENERATED in tasks,
        "of_pairs": bool(tasks.keys() & set(TASKS)) and not verbatim,
    }


def _dots(content: Content) -> str:
    test, means = content.test, content.test.means()
    measure = test.measures[0]
    bounds = np.array([content.intervals[system][measure] for system in test.systems])
    values = np.array([means[system][measure] for system in test.systems])
    names = [short_name(system) for system in test.systems]
    queries = f"{'synthetic ' if test.synthetic else ''}test queries"
    return interval_plot(names, values, bounds[:, 0], bounds[:, 1], measure, queries)


def _training(name: str, curves: pd.DataFrame) -> dict[str, Any]:
    heldout, kept = curves["heldout_loss"], int(curves["kept"].argmax())
    return {
        "name": name,
        "text": about_training(name),
        "plot": Markup(loss_plot(curves, about_training(name))),
        "steps": int(curves["step"].iloc[-1]),
        "start": float(heldout.iloc[0]),
        "end": float(heldout.iloc[-1]),
        "kept": float(heldout.iloc[kept]),
        "kept_step": int(curves["step"].iloc[kept]),
        "ranking": _ranking(curves, kept),
    }


def _ranking(curves: pd.DataFrame, kept: int) -> dict[str, Any] | None:
    """The figures of the dev ranking that chose the kept step, or None if the held-out loss chose it."""
    name = ranking_of(curves)
    if not name:
        return None
    start, best = float(curves[name].iloc[0]), float(curves[name].iloc[kept])
    return {"measure": name.removeprefix(DEV), "start": start, "kept": best}


def signed(value: float) -> str:
    """A difference with its sign and three decimals: +0.012, −0.012 or 0.000."""
    text = f"{abs(value):.3f}"
    return text if text == "0.000" else ("+" if value > 0 else "−") + text


def p_value(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def count(number: int) -> str:
    """A whole number with thin spaces between thousands."""
    return f"{number:,}".replace(",", "\u202f")
