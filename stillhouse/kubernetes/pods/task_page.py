"""The page of a Kubeflow task: what its steps made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stillhouse.markdown import as_text
from stillhouse.monitoring.duration import in_words

if TYPE_CHECKING:
    from stillhouse.kubernetes.pods.task import Done, Work

FIGURES = 6
"""How many figures of a step the page shows."""


def page(name: str, works: Sequence[Work], done: Sequence[Done]) -> str:
    """The steps of a task as Markdown: what each one made, how long it took, and its first figures."""
    lines = [f"## {as_text(name)}", "", "| step | what it made | took | figures |", "|---|---|---|---|"]
    for one in done:
        figures = list(one.report.metrics.items())
        shown = ", ".join(f"{as_text(key)} {value:.4g}" for key, value in figures[:FIGURES])
        more = f", and {len(figures) - FIGURES} more" if len(figures) > FIGURES else ""
        earlier = " (an earlier try)" if one.earlier else ""
        lines.append(
            f"| {as_text(one.work.use.name)} | {as_text(one.report.summary)} | {in_words(one.seconds)}{earlier} "
            f"| {shown}{more} |"
        )
    lines += [f"| {as_text(work.use.name)} | not done: the corpus did not pass | | |" for work in works[len(done) :]]
    return "\n".join(lines) + "\n"
