"""The comparison as comparison.json."""

from __future__ import annotations

from typing import Any

from stillhouse.experiments.comparison.table import Row, Table

FILE = "comparison.json"


def as_json(table: Table) -> dict[str, Any]:
    """All contents of the table as plain data."""
    sweep = table.sweep
    return {
        "sweep": sweep.name,
        "title": sweep.title,
        "source": sweep.source,
        "published_on": sweep.published_on,
        "baseline": sweep.baseline,
        "seeds": list(sweep.seeds),
        "measures": list(table.measures),
        "labels": "synthetic" if table.synthetic else "source",
        "test_queries": table.queries,
        "dev_queries": table.dev_queries,
        "references": {system: dict(means) for system, means in table.references.items()},
        "variants": {row.variant.name: _row_json(row) for row in table.rows},
    }


def _row_json(row: Row) -> dict[str, Any]:
    figures = {
        measure: {
            **{name: value for name, value in vars(figure).items() if name != "against"},
            "against_baseline": vars(figure.against) if figure.against else None,
        }
        for measure, figure in row.figures.items()
    }
    return {
        "label": row.variant.title,
        "pretraining": row.variant.pretraining,
        "overrides": dict(row.variant.overrides),
        "published": dict(row.variant.published),
        "seeds": list(row.seeds),
        "test": figures,
        "dev": dict(row.dev),
        "losses": dict(row.losses),
        "heldout_loss": row.heldout_loss,
        "failures": {str(seed): why for seed, why in row.failures.items()},
    }
