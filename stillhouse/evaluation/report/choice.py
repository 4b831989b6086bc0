"""What `select-best` chose, as the report says it: the system, its weights, and the others with their figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stillhouse.evaluation.systems import short_name

START = "zero_shot"
SHOWN = {"log_likelihood": "log-likelihood", "rr10": "RR@10"}
"""What can choose a winner, by its name in the settings of `select-best`."""
MEASURES = SHOWN | {"log_likelihood": "log-likelihood (how likely its scores make the right passages)"}


@dataclass(frozen=True)
class Choice:
    """The winner: its retriever, whether BM25 ranks with it, and by which formula.

    It was chosen from `systems` systems on `queries` dev queries. `contenders` are these systems in the order in which
    they competed, each with its `retriever`, `with_bm25` and `means`; empty if an earlier version made the run.
    """

    retriever: str
    with_bm25: bool
    formula: str
    chosen_by: str
    queries: int
    systems: int
    standard_errors: float = 0.0
    contenders: Sequence[Mapping[str, Any]] = ()

    @property
    def name(self) -> str:
        """The winner in a sentence."""
        return _name(self.retriever, self.with_bm25)

    @property
    def measure(self) -> str:
        return MEASURES.get(self.chosen_by, self.chosen_by)

    @property
    def columns(self) -> dict[str, str]:
        """The measures of the table, by name: first the one that chose."""
        known = {self.chosen_by: SHOWN.get(self.chosen_by, self.chosen_by)} | SHOWN
        return {key: text for key, text in known.items() if all(key in each["means"] for each in self.contenders)}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The table of all contenders: the name of each, its means in the order of the columns, and whether it won."""
        return [
            {
                "name": _name(each["retriever"], each["with_bm25"]),
                "means": [each["means"][key] for key in self.columns],
                "won": (each["retriever"], each["with_bm25"]) == (self.retriever, self.with_bm25),
            }
            for each in self.contenders
        ]

    @property
    def best(self) -> list[float]:
        """The highest mean of each column."""
        return [max(values) for values in zip(*(row["means"] for row in self.rows))]

    @property
    def rule(self) -> str:
        """How the winner follows from the table."""
        measure = SHOWN.get(self.chosen_by, self.chosen_by)
        if not self.standard_errors:
            return f"The highest {measure} wins; if several systems are equal, the first of them does."
        return (
            "The first system is compared with each later one in turn, which replaces it if its mean "
            f"{measure} is more than {self.standard_errors:g} standard errors of the difference higher."
        )


def _name(retriever: str, with_bm25: bool) -> str:
    name = "the base model" if retriever == START else short_name(retriever)
    return f"{name} with BM25" if with_bm25 else name
