"""Whether a challenger may replace the champion, from both systems' values on the same test queries.

It is refused if it is shown to be worse by a paired randomisation test, or if it loses more than `most_loss`, even if
the difference is not significant. A challenger that is neither better nor worse is accepted, because its corpus is
newer. If both are the same retriever, only the recall of their indexes is compared.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stillhouse.evaluation.figures import stable
from stillhouse.evaluation.release_rule import Rule
from stillhouse.evaluation.significance import Comparison, compare


@dataclass(frozen=True)
class Verdict:
    """Whether a challenger is accepted, with the reason in a sentence and the figures behind it."""

    accepted: bool
    reason: str
    queries: int
    champion: float
    challenger: float
    comparison: Comparison

    def plain(self) -> dict[str, Any]:
        figures = {name: stable(value) for name, value in asdict(self.comparison).items() if "holm" not in name}
        means = {"champion": stable(self.champion), "challenger": stable(self.challenger)}
        return {"accepted": self.accepted, "reason": self.reason, "queries": self.queries} | means | figures


@dataclass(frozen=True)
class IndexRecalls:
    """Recall of exact search's best `depth` passages by the released index and by the one that may replace it."""

    depth: int
    champion: float
    challenger: float

    @property
    def sentence(self) -> str:
        return f"recall@{self.depth} of exact search {self.challenger:.4f} against {self.champion:.4f}"


def judge(
    champion_Q: np.ndarray,
    challenger_Q: np.ndarray,
    rule: Rule,
    *,
    same: bool = False,
    recalls: IndexRecalls | None = None,
) -> Verdict:
    """Judge a challenger by its values [Q] on the queries that the champion answered too.

    With `same`, both are the same retriever, which is accepted unless `recalls` are given and drop by more than
    `most_loss`.
    """
    assert champion_Q.shape == challenger_Q.shape and champion_Q.ndim == 1, (champion_Q.shape, challenger_Q.shape)
    [comparison] = compare((challenger_Q - champion_Q)[:, None], rule)
    champion, challenger = float(champion_Q.mean()), float(challenger_Q.mean())
    loss, p, queries = -comparison.difference, comparison.randomisation_p, len(champion_Q)
    figures = f"{rule.measure} {challenger:.4f} against {champion:.4f} on {queries} test queries"
    interval = f"difference {comparison.difference:+.4f}, 95 % interval {comparison.low:+.4f} to {comparison.high:+.4f}"
    accepted = False
    if same and recalls and recalls.champion - recalls.challenger > rule.most_loss:
        reason = f"the new index loses more than most_loss = {rule.most_loss}: {recalls.sentence}"
    elif same:
        of_index = f"; {recalls.sentence}" if recalls else ""
        accepted, reason = True, f"the champion's own retriever: {figures}{of_index}"
    elif queries < rule.least_queries:
        reason = f"too few test queries to compare on: {queries}, but least_queries is {rule.least_queries}"
    elif loss > 0 and p <= rule.alpha:
        reason = f"the challenger is worse: {figures} ({interval}, p = {p:.4f}, at most alpha = {rule.alpha})"
    elif loss > rule.most_loss:
        reason = f"the challenger loses more than most_loss = {rule.most_loss}: {figures} ({interval}, p = {p:.4f})"
    elif loss < 0 and p <= rule.alpha:
        accepted, reason = True, f"the challenger is better: {figures} ({interval}, p = {p:.4f})"
    else:
        accepted, reason = True, f"the challenger is not worse: {figures} ({interval}, p = {p:.4f})"
    return Verdict(accepted, reason, queries, champion, challenger, comparison)
