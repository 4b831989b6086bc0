"""What a step reports at its end."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Report:
    """Scalars for dashboards, facts for the manifests, and one line for the user."""

    summary: str
    metrics: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    html: str = ""
    """File name, inside the first output, of the page to open."""
