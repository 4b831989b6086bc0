"""The table of good base models, `stillhouse/models/base_models.csv`, and which of them are on this machine."""

from __future__ import annotations

import csv
from contextlib import suppress
from pathlib import Path

from stillhouse.core.errors import InputError

SHIPPED = Path(__file__).with_name("base_models.csv")
COLUMNS = ("name", "language", "parameters", "licence", "width", "length", "ndcg10", "source")
"""`name` is what `new --model` takes, `language` an ISO 639-1 code or `many`, `ndcg10` the published mean nDCG@10 over
the 15 English sets of BEIR. A cell of which nothing is known is empty."""
MANY = "many"


def base_models(table: Path | None = None) -> list[dict[str, str]]:
    """The rows of the shipped table, or of a CSV file with the same header.

    Raises `InputError` for a file that cannot be read or has other columns.
    """
    path = table or SHIPPED
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the table of models {path} cannot be read: {error}") from None
    if not rows or not all(row.keys() == set(COLUMNS) and None not in row.values() for row in rows):
        raise InputError(
            f"{path} is not a table of models; its header must be {','.join(COLUMNS)}, and each row is a model"
        )
    if wrong := [row for row in rows if row["ndcg10"] and not row["ndcg10"].replace(".", "", 1).isdigit()]:
        raise InputError(
            f"{path}: ndcg10 of {wrong[0]['name']} is not a number; write one such as 50.15, or leave it empty"
        )
    return rows


def at_hand(name: str) -> bool:
    """Whether a model's weights are on this machine."""
    from stillhouse.models.model_place import place_of

    with suppress(InputError):
        folder = place_of(name)
        return folder is not None and any(folder.rglob("*.safetensors"))
    return False
