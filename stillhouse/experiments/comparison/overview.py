"""A sweep under all its conditions as one table, as in its paper: our figures, the paper's in brackets."""

from __future__ import annotations

from collections.abc import Mapping

from stillhouse.experiments.comparison.files import footnotes
from stillhouse.experiments.comparison.sweep import Sweep
from stillhouse.experiments.comparison.table import Row, Table, same_measure
from stillhouse.markdown import as_text

OVERVIEW = "overview.md"


def as_markdown(sweep: Sweep, tables: Mapping[str, Table]) -> str:
    """One line per variant, and for each condition one column per measure that the paper reports and we have.

    `tables` holds the tables by condition, without conditions that have no result. A condition without published
    figures shows its first measure.
    """
    titles = {condition.name: condition.title for condition in sweep.conditions}
    columns = [(name, published) for name, table in tables.items() for published in _columns(table)]
    heads = ["variant", *(f"{titles[name]}: {published}" for name, published in columns)]
    lines = [f"# {as_text(sweep.title or sweep.name)}", ""]
    if sweep.note:
        lines += [" ".join(sweep.note.split()), ""]
    lines += [_line([as_text(head) for head in heads]), _line(["---", *["---:"] * len(columns)])]
    for variant in sweep.variants:
        rows = [(tables[name], tables[name].row(variant.name), published) for name, published in columns]
        lines.append(_line([as_text(variant.title), *(_cell(*row) for row in rows)]))
    lines += ["", "Our figures, published ones in brackets. See each condition's `comparison.html` for details.", ""]
    for name, table in tables.items():
        lines += [f"## {as_text(titles[name])}", "", *(f"- {text}" for text in footnotes(table)), ""]
    return "\n".join(lines)


def _columns(table: Table) -> list[str]:
    names = [name for name in table.sweep.measures if name in table.sweep.losses or same_measure(name, table.measures)]
    return names or [table.measures[0]]


def _cell(table: Table, row: Row, published: str) -> str:
    figure = row.figures.get(same_measure(published, table.measures))
    ours = row.losses.get(published) if published in table.sweep.losses else figure and figure.mean
    theirs = row.variant.published.get(published)
    shown = "failed" if not row.figures else f"{ours:.3f}" if ours is not None else "–"
    return shown if theirs is None else f"{shown} ({theirs:g})"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
