"""The comparison as comparison.json and comparison.md, and all conditions of a sweep as overview.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import write_json
from stillhouse.core.pages import as_text
from stillhouse.evaluation.significance import SIGNIFICANT
from stillhouse.experiments.comparison.sweep import Sweep
from stillhouse.experiments.comparison.table import Row, Table, same_measure

FILES = ("comparison.json", "comparison.md")
"""The files that `write_files` writes."""
OVERVIEW = "overview.md"


def write_files(table: Table, folder: Path) -> None:
    write_json(folder / "comparison.json", as_json(table))
    (folder / "comparison.md").write_text(as_markdown(table), encoding="utf-8")


def as_json(table: Table) -> dict[str, Any]:
    """All contents of the table as plain data."""
    sweep = table.sweep
    return {
        "sweep": sweep.name,
        "title": sweep.title,
        "source": sweep.source,
        "published_on": sweep.published_on,
        "baseline": sweep.baseline,
        "seeds": list(sweep.seeds),
        "measures": list(table.measures),
        "labels": "synthetic" if table.synthetic else "source",
        "test_queries": table.queries,
        "dev_queries": table.dev_queries,
        "references": {system: dict(means) for system, means in table.references.items()},
        "variants": {row.variant.name: _row_json(row) for row in table.rows},
    }


def as_markdown(table: Table) -> str:
    """The table for a README or a results page, with the paper's figures next to ours."""
    sweep, published = table.sweep, table.sweep.measures
    heads = ["variant", *table.measures, f"Δ {table.measures[0]}"]
    heads += [as_text(name) for name in sweep.losses]
    heads += [f"published {as_text(name)}" for name in published]
    heads.append("held-out loss")
    lines = [f"# {as_text(sweep.title or sweep.name)}", ""]
    if sweep.note:
        lines += [" ".join(sweep.note.split()), ""]
    lines += [_line(heads), _line(["---", *["---:"] * (len(heads) - 1)])]
    for system, means in table.references.items():
        figures = [f"{means[measure]:.3f}" if measure in means else "–" for measure in table.measures]
        lines.append(_line([f"*{as_text(system)}*", *figures, *["–"] * (len(heads) - 1 - len(figures))]))
    for row in table.rows:
        lines.append(_line(_cells(table, row)))
    lines += ["", *(f"- {text}" for text in footnotes(table)), ""]
    return "\n".join(lines)


def overview_markdown(sweep: Sweep, tables: Mapping[str, Table]) -> str:
    """A sweep under all its conditions as one table, as in its paper: our figures, the paper's in brackets.

    It has one line per variant, and for each condition one column per measure that the paper reports and we have.
    `tables` holds the tables by condition, without conditions that have no result. A condition without published
    figures shows its first measure.
    """
    titles = {condition.name: condition.title for condition in sweep.conditions}
    columns = [(name, published) for name, table in tables.items() for published in _measures_shown(table)]
    heads = ["variant", *(f"{titles[name]}: {published}" for name, published in columns)]
    lines = [f"# {as_text(sweep.title or sweep.name)}", ""]
    if sweep.note:
        lines += [" ".join(sweep.note.split()), ""]
    lines += [_line([as_text(head) for head in heads]), _line(["---", *["---:"] * len(columns)])]
    for variant in sweep.variants:
        rows = [(tables[name], tables[name].row(variant.name), published) for name, published in columns]
        lines.append(_line([as_text(variant.title), *(_overview_cell(*row) for row in rows)]))
    lines += ["", "Our figures, published ones in brackets. See each condition's `comparison.html` for details.", ""]
    for name, table in tables.items():
        lines += [f"## {as_text(titles[name])}", "", *(f"- {text}" for text in footnotes(table)), ""]
    return "\n".join(lines)


def footnotes(table: Table) -> list[str]:
    """Notes on how to read the table."""
    sweep, seeds = table.sweep, len(table.sweep.seeds)
    spread = (
        f"mean over {seeds} seeds ± standard deviation"
        if seeds > 1
        else "one seed, so the figures do not show the variation between seeds"
    )
    notes = [f"{table.queries} {table.kind}test queries; {spread}."]
    if sweep.baseline in table.values:
        notes.append(
            f"Δ is the difference from `{sweep.baseline}`, tested over queries (values averaged over seeds) with "
            f"random sign flips; * is significant after Holm's correction (p < {SIGNIFICANT})."
        )
    else:
        notes.append(f"The baseline `{sweep.baseline}` has no result, so there are no tests against it.")
    published = "; ".join(as_text(of) for of in (sweep.source, sweep.published_on) if of)
    if sweep.measures and published:
        notes.append(f"Published: {published}.")
    notes += [
        f"`{row.variant.name}` failed with seed {seed}: {as_text(why)}"
        for row in table.rows
        for seed, why in row.failures.items()
    ]
    return notes


def _cells(table: Table, row: Row) -> list[str]:
    cells = [as_text(row.variant.title)]
    for measure in table.measures:
        figure = row.figures.get(measure)
        spread = f" ± {figure.deviation:.3f}" if figure and figure.deviation is not None else ""
        cells.append(f"{figure.mean:.3f}{spread}" if figure else "failed")
    against = row.figures[table.measures[0]].against if row.figures else None
    star = "*" if against and against.randomisation_p_holm < SIGNIFICANT else ""
    cells.append(f"{against.difference:+.3f}{star}" if against else "–")
    cells += [f"{row.losses[name]:.3f}" if name in row.losses else "–" for name in table.sweep.losses]
    cells += [
        f"{row.variant.published[name]:g}" if name in row.variant.published else "–" for name in table.sweep.measures
    ]
    return [*cells, f"{row.heldout_loss:.3f}" if row.heldout_loss is not None else "–"]


def _measures_shown(table: Table) -> list[str]:
    names = [name for name in table.sweep.measures if name in table.sweep.losses or same_measure(name, table.measures)]
    return names or [table.measures[0]]


def _overview_cell(table: Table, row: Row, published: str) -> str:
    figure = row.figures.get(same_measure(published, table.measures))
    ours = row.losses.get(published) if published in table.sweep.losses else figure and figure.mean
    theirs = row.variant.published.get(published)
    shown = "failed" if not row.figures else f"{ours:.3f}" if ours is not None else "–"
    return shown if theirs is None else f"{shown} ({theirs:g})"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row_json(row: Row) -> dict[str, Any]:
    figures = {
        measure: {
            **{name: value for name, value in vars(figure).items() if name != "against"},
            "against_baseline": vars(figure.against) if figure.against else None,
        }
        for measure, figure in row.figures.items()
    }
    return {
        "label": row.variant.title,
        "pretraining": row.variant.pretraining,
        "overrides": dict(row.variant.overrides),
        "published": dict(row.variant.published),
        "seeds": list(row.seeds),
        "test": figures,
        "dev": dict(row.dev),
        "losses": dict(row.losses),
        "heldout_loss": row.heldout_loss,
        "failures": {str(seed): why for seed, why in row.failures.items()},
    }
