"""What Kubeflow shows for a step besides its figures: pages, a Markdown summary, a classifier's curve.

A view is made from the folders that the step wrote, so steps need not know about views.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from stillhouse.artifacts import write_whole
from stillhouse.markdown import as_text
from stillhouse.steps.spec import Paths, Report

CURVE_POINTS = 100
"""Maximum points of a curve: Kubeflow keeps them as metadata and draws them in the browser."""


@dataclass(frozen=True)
class View:
    """An extra output of a component: its name, its Kubeflow type, what it shows, and the function that makes it.

    `make` gets the step's outputs, its report and the artifact. Its result is written to the artifact's file.
    """

    name: str
    kind: str
    help: str
    make: Callable[[Paths, Report, Any], str]


def write_view(view: View, outputs: Paths, report: Report, artifact: Any) -> None:
    write_whole(Path(artifact.path), view.make(outputs, report, artifact))


def own_page(outputs: Paths, report: Report, artifact: Any) -> str:
    """The page that the step wrote into its first output, or else its summary."""
    if not report.html:
        return _page("No page", f"<p>{escape(report.summary)}</p>")
    first = next(iter(outputs.values()))
    return (first / report.html).read_text(encoding="utf-8")


def curves_page(outputs: Paths, report: Report, artifact: Any) -> str:
    """The training and held-out loss over steps."""
    from stillhouse.evaluation.report.curves import loss_plot, read_curves

    curves = read_curves(outputs["curves"])
    if curves.empty:
        return _page("Nothing was trained", f"<p>{escape(report.summary)}</p>")
    plot = loss_plot(curves, "the training")
    about = "A ring marks the step whose parameters are kept."
    return _page("Loss over steps", f"<p>{escape(report.summary)}. {about}</p><figure>{plot}</figure>")


def figures_in_markdown(outputs: Paths, report: Report, artifact: Any) -> str:
    """The evaluation's means as a table, with intervals if available."""
    folder = outputs["evaluation"]
    means = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    bounds = json.loads((folder / "intervals.json").read_text(encoding="utf-8"))
    measures = list(next(iter(means.values())))
    lines = ["| system | " + " | ".join(map(as_text, measures)) + " |", "|---|" + "---|" * len(measures)]
    for system, values in means.items():
        cells = [_cell(values[measure], bounds.get(system, {}).get(measure)) for measure in measures]
        lines.append(f"| {as_text(system)} | " + " | ".join(cells) + " |")
    kind = "**synthetic** " if report.facts.get("labels") not in ("source", None) else ""
    about = f"{as_text(report.facts.get('test_queries'))} {kind}test queries; 95 % intervals in brackets."
    return f"## Evaluation\n\n{about}\n\n" + "\n".join(lines) + "\n"


def teacher_curve(outputs: Paths, report: Report, artifact: Any) -> str:
    """Logs how well the cross-encoder's scores separate positives from mined negatives, over all thresholds."""
    import numpy as np

    from stillhouse.retrieval.fine_tuning.teacher import Teacher

    teacher = Teacher.read(outputs["teacher"])
    negatives = np.asarray(teacher.negative_scores_QD)
    curve = roc(teacher.positives["score"].to_numpy(), negatives[~np.isnan(negatives)])
    artifact.log_roc_curve(*curve)
    return json.dumps(dict(zip(("false_positive_rate", "true_positive_rate", "threshold"), curve))) + "\n"


def roc(positives: Any, negatives: Any) -> tuple[list[float], list[float], list[float]]:
    """False and true positive rates by falling threshold: at most `CURVE_POINTS` points, including the ends."""
    import numpy as np

    if not len(positives) or not len(negatives):
        return [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]
    every = np.unique(np.concatenate([positives, negatives]))[::-1]
    chosen = every[np.unique(np.linspace(0, len(every) - 1, min(len(every), CURVE_POINTS - 1)).round().astype(int))]
    of_positives, of_negatives = np.sort(positives), np.sort(negatives)

    def reached(scores: Any) -> list[float]:
        """The share of scores at or above each threshold; none are above the first, which is infinite."""
        return [0.0, *(1 - np.searchsorted(scores, chosen, side="left") / len(scores)).tolist()]

    highest = float(every[0]) + 1.0  # JSON has no infinity
    return reached(of_negatives), reached(of_positives), [highest, *chosen.astype(float).tolist()]


def _cell(mean: float, bounds: Any) -> str:
    return f"{mean:.3f}" + (f" ({bounds[0]:.3f} to {bounds[1]:.3f})" if bounds else "")


def _page(title: str, body: str) -> str:
    """A self-contained page: Kubeflow shows it in a frame without network access."""
    from stillhouse.evaluation.report import page

    style = (Path(page.__file__).parent / "style.css").read_text(encoding="utf-8")
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{style}</style>'
    return f"<!doctype html>\n<html lang=en><head>{head}</head><body><h1>{escape(title)}</h1>{body}</body></html>\n"


CURVES = View("html", "HTML", "its loss curves, as a page", curves_page)
REPORT = View("html", "HTML", "the report, as a page", own_page)
VIEWS: Mapping[str, tuple[View, ...]] = {
    "validate": (REPORT,),
    "evaluate": (REPORT, View("summary", "Markdown", "the figures of every system, as a table", figures_in_markdown)),
    "importance": (View("html", "HTML", "what gets masked, as a page", own_page),),
    "pretrain": (CURVES,),
    "train-retriever": (CURVES,),
    "train-query-encoder": (CURVES,),
    "train-reranker": (CURVES,),
    "score-pairs": (
        View("roc", "ClassificationMetrics", "how the scores tell positives from negatives", teacher_curve),
    ),
}
"""The views of each step that has some."""


def views_of(step: str) -> tuple[View, ...]:
    return VIEWS.get(step, ())
