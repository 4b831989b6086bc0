"""Step `importance`: counts n-grams and scores every token by its average mutual information (003 eq. 7-8)."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `importance`."""

    window: int = setting(4, "longest n-gram that is counted: L of 003 eq. 8", minimum=2, maximum=8)
    edges: str = setting(
        "equation",
        "terms of 003 eq. 8 that do not exist at a passage's edges: equation = count as 0, present = are left out",
        choices=("equation", "present"),
    )


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import numpy as np

    from stillhouse.pretraining.pmi import average_mutual_information, count_ngrams

    ids = np.load(inputs["tokens"] / "ids.npy", mmap_mode="r")
    offsets = np.load(inputs["tokens"] / "offsets.npy")
    orders = count_ngrams(ids, offsets, config.window)
    ami = average_mutual_information(orders, config.edges)
    folder = outputs["importance"]
    np.save(folder / "ami.npy", ami)
    for n, order in enumerate(orders, start=1):
        order.save(folder / f"ngrams_{n}.npy")
    distinct = {f"distinct_{n}_grams": len(order.counts) for n, order in enumerate(orders, start=1)}
    spread = float(ami.std()) if len(ami) else 0.0
    facts = {"tokens": len(ids), "ami_standard_deviation": round(spread, 4), **distinct}
    # Algorithm 1 adds noise of a fixed size to AMI: how random its masks are depends on how far AMI values spread.
    summary = (
        f"{len(ids)} tokens, distinct n-grams {' / '.join(map(str, distinct.values()))}, AMI spreads by {spread:.2f}"
    )
    return Report(summary, metrics={name: float(value) for name, value in facts.items()}, facts=facts)


STEP = Step(
    "importance",
    "counts n-grams and scores every token by its average mutual information (003 eq. 7-8)",
    Config,
    inputs=(Port("tokens", "the token arrays"),),
    outputs=(Port("importance", "n-gram counts and one AMI value a token"),),
    run=run,
)
