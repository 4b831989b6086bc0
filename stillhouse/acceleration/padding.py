"""Whether training computes padding. No torch here, because steps declare their settings with it."""

from __future__ import annotations

PADDING = ("auto", "none", "kept")
