"""Whether a training computes padding; no torch here, since steps declare their settings with it."""

from __future__ import annotations

PADDING = ("auto", "none", "kept")
