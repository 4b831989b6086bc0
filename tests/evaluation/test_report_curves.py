from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stillhouse.core.curves import CurveRow, write_curves
from stillhouse.core.errors import InputError
from stillhouse.evaluation.report.curves import interval_plot, loss_plot, read_curves

CURVES = pd.DataFrame({"step": [0, 5, 10, 15], "train_loss": [3.0, 2, 1, 0.5], "heldout_loss": [3.0, 1.5, 1.5, 1.8]})
CURVES["kept"] = [False, False, True, False]


def test_curves_are_read_back(tmp_path: Path) -> None:
    CURVES.astype({"kept": int}).to_csv(tmp_path / "curves.csv", index=False)
    assert read_curves(tmp_path).equals(CURVES)


@pytest.mark.parametrize("content", [None, "", "step,loss\n1,2\n"])
def test_an_invalid_curves_file_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "curves.csv").write_text(content)
    with pytest.raises(InputError, match=r"curves\.csv"):
        read_curves(tmp_path)


RANKED = CURVES.assign(**{"kept": [False, True, False, False], "dev_RR@10": [0.5, 0.7, 0.7, 0.6]})


def test_the_dev_ranking_that_chose_the_checkpoint_is_shown(tmp_path: Path) -> None:
    """Other signals, such as those of pre-training, are not shown."""
    rows = [CurveRow(*row[:3], {"dev_RR@10": row[4], "ict_RR@10": 0.1}) for row in RANKED.itertuples(index=False)]
    write_curves(tmp_path, rows, "dev_RR@10")
    read = read_curves(tmp_path)
    assert read.equals(RANKED), "of equal rankings the first"
    root = ElementTree.fromstring(loss_plot(read, "retriever 1"))
    texts = {"".join(element.itertext()).strip() for element in root.iter() if element.tag.endswith("text")}
    assert {"step", "loss", "RR@10 on dev"} <= texts
    write_curves(tmp_path, [CurveRow(*row[:3], {"ict_RR@10": 0.1}) for row in RANKED.itertuples(index=False)])
    assert read_curves(tmp_path).equals(CURVES)


def test_the_ring_is_at_the_step_that_another_signal_chose(tmp_path: Path) -> None:
    """As with `--metric-for-best-model ict_RR@10` in a pre-training."""
    rows = [CurveRow(*row[:3], {"ict_RR@10": 0.5 - row[0] / 100}) for row in CURVES.itertuples(index=False)]
    write_curves(tmp_path, rows, "ict_RR@10")
    read = read_curves(tmp_path)
    assert read["kept"].tolist() == [True, False, False, False]
    by_loss = read.assign(kept=CURVES["kept"])
    assert loss_plot(read, "pretraining") != loss_plot(by_loss, "pretraining")


def test_plots_are_labelled_svg_of_the_same_bytes_each_time() -> None:
    first = loss_plot(CURVES, "retriever <1>")
    assert first == loss_plot(CURVES, "retriever <1>")
    root = ElementTree.fromstring(first)
    texts = {"".join(element.itertext()).strip() for element in root.iter() if element.tag.endswith("text")}
    assert {"step", "loss", "training", "held-out"} <= texts
    assert root.get("aria-label") == "loss curves of retriever <1>"


def test_interval_plot_names_every_system_and_its_mean() -> None:
    svg = interval_plot(
        ["BM25", "distilled"],
        np.array([0.25, 0.5]),
        np.array([0.2, 0.4]),
        np.array([0.3, 0.6]),
        "RR@10",
        "made queries",
    )
    texts = {"".join(e.itertext()).strip() for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("text")}
    assert {"BM25", "distilled", "0.250", "0.500", "RR@10 on made queries, mean and 95 % interval"} <= texts


def test_plots_share_a_page_without_sharing_identifiers() -> None:
    plots = [loss_plot(CURVES, name) for name in ("retriever 1", "retriever 2")]
    found = [{e.get("id") for e in ElementTree.fromstring(plot).iter() if e.get("id")} for plot in plots]
    assert found[0] and not found[0] & found[1]


HOSTILE = [r"a$\frac$b", r"a$b$c <b>&amp; \alpha 50 % {0}"]


def plots_with(name: str) -> dict[str, str]:
    """Return every plot, with a user-chosen name wherever it takes one."""
    return {
        "intervals": interval_plot([name, "BM25"], *np.array([[0.5, 0.3], [0.4, 0.2], [0.6, 0.4]]), name, name),
        "losses": loss_plot(CURVES, name),
    }


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_shown_as_they_are(name: str) -> None:
    r"""Matplotlib reads text between dollars as a formula, and raises `ValueError` for `$\frac$`."""
    for plot, svg in plots_with(name).items():
        root = ElementTree.fromstring(svg)
        texts = ["".join(element.itertext()).strip() for element in root.iter() if element.tag.endswith("text")]
        assert plot == "losses" or any(name in text for text in texts), plot
        assert plot != "losses" or root.get("aria-label") == f"loss curves of {name}"
