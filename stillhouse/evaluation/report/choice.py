"""What `select-best` chose, as the report says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stillhouse.evaluation.systems import short_name

START = "zero_shot"
MEASURES = {"log_likelihood": "log-likelihood (of the right passages, by its scores)", "rr10": "RR@10"}
"""What can choose a winner, by its name in the settings of `select-best`."""


@dataclass(frozen=True)
class Choice:
    """The winner: its retriever, what ranks with it ("BM25", "late interaction"), and by which formula.

    It was chosen from `systems` systems on `queries` dev queries, which could only overturn a choice by `made_queries`
    made ones if there were any.
    """

    retriever: str
    partners: Sequence[str]
    formula: str
    chosen_by: str
    queries: int
    systems: int
    made_queries: int = 0

    @property
    def name(self) -> str:
        """The winner in a sentence."""
        name = "the base model" if self.retriever == START else short_name(self.retriever)
        return f"{name} with {' and '.join(self.partners)}" if self.partners else name

    @property
    def measure(self) -> str:
        return MEASURES.get(self.chosen_by, self.chosen_by)
