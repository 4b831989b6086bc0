"""The results of one run of a variant: per-query values, loss curves, signals and token coverage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from stillhouse.core.errors import InputError
from stillhouse.corpus.schemas import SOURCE

SPLITS = ("dev", "test")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One variant with one seed.

    `test` and `dev`: float64 columns named after the measures, indexed by `query_id`; dev may be empty. `signals`:
    columns `step` (int64), `signal`, `value` (float64), long form. `coverage`: columns `k` (int64), `coverage`
    (float64). `examples`: for some passages the tokens that its vector ranks first, {passage, tokens: [{token, rank,
    in_passage}]}. `losses` maps the sweep's loss figures to the lowest held-out loss of their training. `failure` is
    the reason if there are no results.
    """

    variant: str
    seed: int
    test: pd.DataFrame = field(default_factory=pd.DataFrame)
    dev: pd.DataFrame = field(default_factory=pd.DataFrame)
    signals: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["step", "signal", "value"]))
    coverage: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["k", "coverage"]))
    examples: tuple[Mapping[str, Any], ...] = ()
    steps: int = 0
    losses: Mapping[str, float] = field(default_factory=dict)
    failure: str = ""


def read_outcome(
    variant: str, seed: int, evaluation: Path, curves: Path | None, losses: Mapping[str, Path] | None = None
) -> Outcome:
    """Read the evaluation folder of one system and, if it was pre-trained, the folder of its curves.

    `losses` maps loss figures to the curves that provide them. Raises `InputError` for a missing or damaged file.
    """
    values = read_per_query(evaluation)
    assert len(values) == 1, f"{evaluation} should be of one system, not {list(values)}"
    [measured] = values.values()
    of_pretraining = {} if curves is None else _read_pretraining(curves)
    lowest = {name: lowest_loss(folder) for name, folder in (losses or {}).items()}
    frames: dict[str, Any] = {split: measured.get(split, pd.DataFrame()) for split in SPLITS}
    return Outcome(variant=variant, seed=seed, losses=lowest, **frames, **of_pretraining)


def _read_pretraining(curves: Path) -> dict[str, Any]:
    """The signals, the steps and, if they were written, the token coverage and its examples."""
    signals, coverage, examples = read_signals(curves), curves / "coverage.csv", curves / "coverage_examples.json"
    found: dict[str, Any] = {"signals": signals, "steps": int(signals["step"].max()) if len(signals) else 0}
    if coverage.is_file():
        found["coverage"] = pd.read_csv(coverage)
    if examples.is_file():
        found["examples"] = tuple(json.loads(examples.read_text(encoding="utf-8")))
    return found


def read_per_query(evaluation: Path) -> dict[str, dict[str, pd.DataFrame]]:
    """{system: {split: per-query values}} of an evaluation's `per_query.parquet`.

    The values are for the labelled queries of a split or, if it has none, for the synthetic ones made from the corpus.
    """
    table = pd.read_parquet(evaluation / "per_query.parquet")
    found: dict[str, dict[str, pd.DataFrame]] = {}
    for (system, split), part in table.groupby(["system", "split"], sort=False):
        labelled = part["origin"] == SOURCE
        chosen = part[labelled] if labelled.any() else part
        values = chosen.drop(columns=["system", "split", "origin"]).set_index("query_id").astype(np.float64)
        found.setdefault(str(system), {})[str(split)] = values
    return found


def read_signals(curves: Path) -> pd.DataFrame:
    """The signals of a pre-training run: `heldout_loss` from curves.csv, then all signals in signals.csv."""
    path, more = curves / "curves.csv", curves / "signals.csv"
    if not path.is_file():
        raise InputError(f"{path} does not exist; run the pre-training that writes {curves} again")
    losses = pd.read_csv(path)
    parts = [losses[["step"]].assign(signal="heldout_loss", value=losses["heldout_loss"])]
    parts += [pd.read_csv(more)] if more.is_file() else []
    return pd.concat(parts, ignore_index=True).astype({"step": np.int64, "value": np.float64})


def lowest_loss(curves: Path) -> float:
    """The lowest held-out loss of a training. Raises `InputError` if none was measured."""
    signals = read_signals(curves)
    losses = signals.loc[signals["signal"] == "heldout_loss", "value"]
    if losses.empty:
        raise InputError(f"{curves} has no held-out loss; set an objective for its training")
    return float(losses.min())
