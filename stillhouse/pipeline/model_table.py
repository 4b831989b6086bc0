"""The table of good base models, `stillhouse/models/base_models.csv`, and which of them are on this machine.

`name` is what `new --model` takes, `language` an ISO 639-1 code or `many`, `ndcg10` the published mean nDCG@10 over the
15 English sets of BEIR. A cell of which nothing is known is empty.
"""

from __future__ import annotations

import csv
from contextlib import suppress
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.pipeline.start_model import place_of

MANY = "many"


def base_models() -> list[dict[str, str]]:
    """The rows of the table."""
    with (Path(__file__).parents[1] / "models" / "base_models.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def at_hand(name: str) -> bool:
    """Whether a model's weights are on this machine."""
    with suppress(InputError):
        folder = place_of(name)
        return folder is not None and any(folder.rglob("*.safetensors"))
    return False
