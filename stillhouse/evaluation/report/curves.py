"""The report's plots as SVG text: figures of all systems with intervals, and the loss curves of every training.

Plots are built without pyplot's global state and saved with a fixed hash salt and no date, so the same numbers give the
same bytes. Text stays text in the page's font. Colours are placeholders that become variables of the page's style
sheet, so a plot follows the light or dark scheme.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from stillhouse.core.curves import DEV
from stillhouse.core.errors import InputError

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "stillhouse",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,  # system and corpus names may contain $, which must not start a formula
}
INK, FAINT, ACCENT, SECOND, GROUND = "#010101", "#020202", "#030303", "#040404", "#050505"
PALETTE = tuple(f"#0c0c0{number}" for number in range(8))
VARIABLES = {
    INK: "--ink",
    FAINT: "--rule",
    ACCENT: "--accent",
    SECOND: "--muted",
    GROUND: "--ground",
    **{colour: f"--c{number}" for number, colour in enumerate(PALETTE)},
}
COLUMNS = ["step", "train_loss", "heldout_loss", "kept"]


def read_curves(folder: Path) -> pd.DataFrame:
    """Read `curves.csv`: `step` (int64), `train_loss`, `heldout_loss` (float64) and `kept` (bool).

    If a ranking of dev queries chose the kept step, it comes from `signals.csv` as one more column (float64), see
    `ranking_of`. There are no rows if nothing was trained. Raises `InputError` if a file is missing or has other
    columns.
    """
    curves = _csv(folder / "curves.csv", COLUMNS)
    curves = curves.astype({"step": np.int64, "train_loss": np.float64, "heldout_loss": np.float64, "kept": np.bool_})
    if not (folder / "signals.csv").is_file():
        return curves
    signals = _csv(folder / "signals.csv", ["step", "signal", "value"])
    signals = signals[signals["signal"].str.startswith(DEV)]
    for name, rows in signals.groupby("signal"):
        curves[str(name)] = curves["step"].map(rows.set_index("step")["value"]).astype(np.float64)
    return curves


def ranking_of(curves: pd.DataFrame) -> str:
    """The column with the ranking of dev queries that chose the kept step; "" if the loss chose it."""
    return next((str(name) for name in curves.columns if str(name).startswith(DEV)), "")


def _csv(path: Path, columns: list[str]) -> pd.DataFrame:
    try:
        table = pd.read_csv(path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; run the training that writes {path.parent} again") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a CSV file: {error}") from None
    if list(table.columns) != columns:
        raise InputError(f"{path} must have the columns {', '.join(columns)}")
    return table


def interval_plot(
    labels: Sequence[str], means: np.ndarray, low: np.ndarray, high: np.ndarray, measure: str, queries: str
) -> str:
    """A dot with its interval for every system, the first at the top; the best has the accent.

    `queries` describes the queries in the axis label.
    """
    with drawing():
        figure = Figure(figsize=(7.6, 0.9 + 0.42 * len(labels)), layout="constrained")
        axes = figure.add_subplot()
        place = np.arange(len(labels))
        best = int(np.argmax(means))
        for i in place:
            colour = ACCENT if i == best else INK
            axes.plot([low[i], high[i]], [i, i], color=colour, linewidth=2, solid_capstyle="round", zorder=2)
            axes.plot([means[i]], [i], marker="o", markersize=8, color=colour, zorder=3)
            axes.annotate(
                f"{means[i]:.3f}",
                (means[i], i),
                (0, 7),
                textcoords="offset points",
                ha="center",
                fontsize=9,
                color=colour,
            )
        axes.set_yticks(place, labels)
        axes.set_ylim(len(labels) - 0.5, -0.75)
        axes.set_xlabel(f"{measure} on {queries}, mean and 95 % interval")
        axes.grid(axis="x", color=FAINT, linewidth=0.8, zorder=0)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        return as_svg(figure, f"{measure} of every system: mean and 95 % interval")


def loss_plot(curves: pd.DataFrame, name: str) -> str:
    """Training and held-out loss over steps, and below them the ranking of dev queries if it chose the step.

    A ring marks the kept step. The training loss of step 0 is left out, because it only repeats the
    held-out loss.
    """
    with drawing():
        ranking = ranking_of(curves)
        figure = Figure(figsize=(3.6, 3.9 if ranking else 2.5), layout="constrained")
        panels = figure.subplots(2 if ranking else 1, sharex=True, squeeze=False)[:, 0]
        axes = panels[0]
        trained = curves[curves["step"] > 0]
        axes.plot(trained["step"], trained["train_loss"], color=SECOND, linewidth=1.4, label="training")
        axes.plot(curves["step"], curves["heldout_loss"], color=ACCENT, linewidth=2, label="held-out")
        axes.set_ylabel("loss")
        axes.legend(frameon=False, fontsize=9, labelcolor=INK, loc="upper right")
        if ranking:
            panels[1].plot(curves["step"], curves[ranking], color=ACCENT, linewidth=2)
            panels[1].set_ylabel(f"{ranking.removeprefix(DEV)} on dev")
        kept, shown = curves[curves["kept"]], ranking or "heldout_loss"
        panels[-1].plot(kept["step"], kept[shown], "o", markersize=7, color=ACCENT, markerfacecolor=GROUND, zorder=4)
        panels[-1].set_xlabel("step")
        for panel in panels:
            panel.locator_params(axis="x", nbins=5, integer=True)
            panel.locator_params(axis="y", nbins=5)
            panel.grid(axis="y", color=FAINT, linewidth=0.8)
        return as_svg(figure, f"loss curves of {name}")


@contextmanager
def drawing() -> Iterator[None]:
    """Use Matplotlib's defaults and `STYLE`, ignoring the machine's settings file."""
    with mpl.rc_context():
        mpl.rcdefaults()
        with mpl.rc_context(STYLE):
            yield


def as_svg(figure: Figure, description: str) -> str:
    """The figure, in the page's colours, as an `<svg>` element for inlining, with a description for screen readers."""
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
        axes.tick_params(colors=INK, labelcolor=INK)
        for axis in (axes.xaxis, axes.yaxis):
            axis.label.set_color(INK)
        axes.spines[:].set_color(FAINT)
    FigureCanvasSVG(figure)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].rstrip()
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    # A style element would affect the whole page, and the page's own font is better than a list of fonts.
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    # Identifiers must be unique on the page, which has all plots.
    prefix = "svg-" + re.sub(r"[^a-z0-9]+", "-", description.lower()) + "-"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = svg.replace('href="#', f'href="#{prefix}').replace("url(#", f"url(#{prefix}")
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
