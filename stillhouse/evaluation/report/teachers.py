"""The report's section on teachers: how each was chosen, whether it is ahead of its student, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.core.curves import IGNORED, SKIPPED, TAUGHT, TEACHER
from stillhouse.core.errors import InputError

PARTS = {
    "bm25": "BM25",
    "retriever": "the retriever",
    "cross_encoder": "the cross-encoder",
    "generator": "the likelihood of the question",
}
"""The kinds of scores."""


@dataclass(frozen=True)
class Taught:
    """The teacher of one training, as `score-pairs` chose it.

    `reciprocal_ranks` maps each part and each sum to RR@10 on `queries` dev queries; it is empty if nothing was
    measured. `weights` belong to the parts of the chosen teacher. `student` is the part that learns; it is not in
    `reciprocal_ranks` if it was not measured. `used` is what the training did: taught, ignored or skipped.
    """

    chosen: str
    weights: Mapping[str, float]
    reciprocal_ranks: Mapping[str, float]
    student: str
    queries: int
    ahead: bool
    used: str

    @property
    def compared(self) -> bool:
        """Whether the student was ranked too."""
        return self.student in self.reciprocal_ranks

    @property
    def name(self) -> str:
        """The teacher in a sentence; a sum with the parts that it adds up."""
        if self.chosen in PARTS:
            return PARTS[self.chosen]
        parts = [name for kind, name in PARTS.items() if self.weights.get(kind)]
        return f"the weighted sum of {', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)

    @property
    def sentence(self) -> str:
        """Which teacher was chosen, whether it is ahead of its student, and what the training did with it."""
        asked = f"the candidates of {self.queries:,} dev quer{'y' if self.queries == 1 else 'ies'}"
        if not self.reciprocal_ranks:
            ranks = "was not measured, since no dev query had both right and wrong candidates"
        elif not self.compared:
            own = self.reciprocal_ranks[self.chosen]
            ranks = f"ranks {asked} with RR@10 {own:.3f}; its student was not ranked on them"
        else:
            better = "better" if self.ahead else "no better"
            own, other = self.reciprocal_ranks[self.chosen], self.reciprocal_ranks[self.student]
            figures = f"RR@10 {own:.3f} against {other:.3f}"
            ranks = f"ranks {asked} {better} than its student, the retriever before distillation: {figures}"
        anyway = "" if self.ahead else ", although it is not ahead"
        then = {
            TAUGHT: f"Distillation learned from it{anyway}.",
            IGNORED: "So the training went on without it.",
            SKIPPED: "So distillation was skipped, and the retriever was kept as it was.",
        }[self.used]
        return f"The teacher is {self.name}. It {ranks}. {then}"

    def figures(self) -> dict[str, Any]:
        """What `teachers.json` says of it."""
        return {
            "sentence": self.sentence,
            "chosen": self.chosen,
            "weights": dict(self.weights),
            "dev_RR@10": dict(self.reciprocal_ranks),
            "dev_queries": self.queries,
            "student": self.student,
            "ahead": self.ahead if self.compared else None,
            "used": self.used,
        }


def read_teacher(curves: Path) -> Taught | None:
    """The teacher of the training that wrote these curves; None if it had none. Raises `InputError` for another
    file of that name."""
    path = curves / TEACHER
    if not path.is_file():
        return None
    try:
        return Taught(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise InputError(f"{path} does not describe a teacher; run the training that writes {curves} again") from None
