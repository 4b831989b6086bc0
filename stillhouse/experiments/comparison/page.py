"""The comparison as one self-contained HTML page: no scripts, no external resources, everything escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from stillhouse.core.pages import page_template, shared_style
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.figures import measure_runs
from stillhouse.evaluation.measures import parse_measures
from stillhouse.evaluation.report import page as evaluation_page
from stillhouse.evaluation.report.examples import Example, example_queries
from stillhouse.evaluation.significance import SIGNIFICANT
from stillhouse.evaluation.systems import short_name
from stillhouse.experiments.comparison.outcomes import Outcome
from stillhouse.experiments.comparison.plots import PALETTE, axis_plot, colours, curve_plot, dash
from stillhouse.experiments.comparison.signals import coverage_curves, signal_curves
from stillhouse.experiments.comparison.table import Row, Table

PAGE = "comparison.html"
EXAMPLES = 3
"""How many passages to show with their top-ranked tokens."""


def render(table: Table, outcomes: Sequence[Outcome], queries: Sequence[Example] = ()) -> str:
    """The page as text; equal content gives equal text. `queries` are examples with variants' names as systems."""
    here = Path(__file__).parent
    formats = {"signed": evaluation_page.signed, "p_value": evaluation_page.p_value, "count": evaluation_page.count}
    own_style = (here / "style.css").read_text(encoding="utf-8")
    sweep, has_dev = table.sweep, any(table.measures[0] in row.dev for row in table.done)
    coverage = coverage_curves(sweep, outcomes)
    variants = [row.variant for row in table.rows]
    changed = {key for variant in variants for key in (*variant.overrides, *variant.inputs, variant.retriever)} - {""}
    return page_template(here / "page.html", **formats).render(
        title=sweep.title or sweep.name,
        note=" ".join(sweep.note.split()),
        style=Markup(f"{shared_style()}\n{own_style}"),
        table=table,
        main=table.measures[0],
        sweep=sweep,
        headline=headline(table),
        same=all(key.startswith("pretraining.") for key in changed),
        winners=sum(_beats(row, table.measures[0]) for row in table.done),
        significant=SIGNIFICANT,
        has_dev=has_dev,
        references=[(short_name(name), means) for name, means in table.references.items()],
        rows=[_row(table, row) for row in table.rows],
        pretrained=[_row(table, row) for row in table.done if row.variant.pretraining],
        columns=1 + len(table.measures) + has_dev + len(sweep.losses) + len(sweep.measures),
        axis=axis_plot(table) if sweep.axis else "",
        axis_name=sweep.axis.split(".")[-1].replace("_", " "),
        signals=[(name, curve_plot(curves, sweep, name)) for name, curves in signal_curves(sweep, outcomes).items()],
        legend=_legend(table),
        coverage=curve_plot(coverage, sweep, "token coverage", "k", wide=True) if coverage else "",
        examples=token_examples(table, outcomes),
        queries=queries,
        names=_titles(table),
    )


def headline(table: Table) -> dict[str, Any]:
    """The best variant (on dev) compared with the baseline, by the first measure on test."""
    measure, best = table.measures[0], table.best
    against = best.figures[measure].against
    base = table.row(table.sweep.baseline)
    verdict = ""
    if against:
        verdict = "better than" if against.difference > 0 else "worse than"
        if against.low <= 0 <= against.high:
            verdict = "not clearly different from"
    title = best.variant.title
    return {
        "best": title[0].upper() + title[1:] if " " in title else title,
        "base": base.variant.title,
        "by_dev": table.by_dev,
        "value": best.figures[measure].mean,
        "base_value": base.figures[measure].mean if base.figures else 0.0,
        "against": against,
        "verdict": verdict,
        "unbeaten": best is base and len(table.done) > 1,
    }


def token_examples(table: Table, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """For some passages, the tokens that each variant's vector ranks first, and whether they are in the passage.

    A passage is shown with every variant that has it, from the first seed that has it.
    """
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for outcome in outcomes:
        for example in outcome.examples:
            found.setdefault(example["passage"], {}).setdefault(outcome.variant, example["tokens"])
    chosen = sorted(found, key=lambda passage: -len(found[passage]))[:EXAMPLES]
    colour = colours(table.sweep)
    titles = _titles(table)

    def row(name: str, tokens: list[Mapping[str, Any]]) -> dict[str, Any]:
        ranked, hits = sorted(tokens, key=lambda token: token["rank"]), sum(token["in_passage"] for token in tokens)
        return {"title": titles[name], "colour": _variable(colour[name]), "tokens": ranked, "hits": hits}

    return [{"passage": passage, "variants": [row(*of) for of in found[passage].items()]} for passage in chosen]


def variant_examples(table: Table, corpus: Path, runs: Mapping[str, Path]) -> list[Example]:
    """The `examples` queries on which the baseline and the best other variant differ most, with every answer.

    As in SimLM Tables 9 and 14, but chosen by rule. `runs` maps a variant to the run folder of its first seed. The
    baseline comes first in an example and the best of the others last, because the differences between these two choose
    the queries.
    """
    names = [row.variant.name for row in table.done if row.variant.name in runs]
    if len(names) < 2 or not table.sweep.examples:
        return []
    first = table.measures[0]
    others = sorted((n for n in names if n != table.sweep.baseline), key=lambda n: table.row(n).figures[first].mean)
    ordered = [name for name in names if name not in others] + others
    opened = Corpus.open(corpus)
    measured = measure_runs(opened, {name: runs[name] for name in ordered}, "test", parse_measures(first))
    return example_queries(opened, measured[0], table.sweep.examples)


def _row(table: Table, row: Row) -> dict[str, Any]:
    best = {measure: max(other.figures[measure].mean for other in table.done) for measure in table.measures}
    return {
        "name": row.variant.name,
        "title": row.variant.title,
        "text": _settings(row),
        "base": row.variant.name == table.sweep.baseline,
        "colour": _variable(colours(table.sweep)[row.variant.name]),
        "cells": [{"figure": figure, "best": figure.mean == best[name]} for name, figure in row.figures.items()],
        "dev": row.dev.get(table.measures[0]),
        "losses": [f"{row.losses[name]:.3f}" if name in row.losses else None for name in table.sweep.losses],
        "published": [
            f"{row.variant.published[name]:g}" if name in row.variant.published else None
            for name in table.sweep.measures
        ],
        "steps": evaluation_page.count(row.steps),
        "heldout": row.heldout_loss,
        "failures": [f"seed {seed} failed: {why}" for seed, why in row.failures.items()],
    }


def _settings(row: Row) -> str:
    """The variant's changed settings as text, without those that its name shows."""
    changed = {key: value for key, value in row.variant.overrides.items() if str(value) not in row.variant.title}
    return " · ".join(f"{key.split('.')[1].replace('_', ' ')} {value}" for key, value in changed.items())


def _legend(table: Table) -> Markup:
    colour = colours(table.sweep)
    items = [
        f'<li><i style="border-color: {_variable(colour[v.name])};'
        f' border-top-style: {dash(colour[v.name])}"></i>{escape(v.title)}</li>'
        for v in table.sweep.variants
        if v.pretraining
    ]
    return Markup(f'<ul class="legend">{"".join(items)}</ul>')


def _variable(number: int) -> str:
    """The style sheet's variable with a variant's colour."""
    return f"var(--c{number % len(PALETTE)})"


def _beats(row: Row, measure: str) -> bool:
    against = row.figures[measure].against
    return bool(against and against.difference > 0 and against.randomisation_p_holm < SIGNIFICANT)


def _titles(table: Table) -> dict[str, str]:
    return {variant.name: variant.title for variant in table.sweep.variants}
