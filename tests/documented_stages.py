"""The rows that docs/fine-tuning.md tells users to add to a recipe."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import yaml

PAGE = Path(__file__).resolve().parents[1] / "docs" / "fine-tuning.md"


def documented_re_ranker() -> dict[str, Any]:
    """The sections of the re-ranker that starts from the retriever."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.split("## A re-ranker that starts from the retriever\n")[1].split("\n## ")[0]
    [example] = re.findall(r"(?:^ {4}.*\n)+", section, re.MULTILINE)
    rows: dict[str, Any] = yaml.safe_load(textwrap.dedent(example))
    return rows


def documented_stages() -> list[dict[str, Any]]:
    """The blocks of `stages`: a further round of negatives, and an example of every change."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [yaml.safe_load(block) for block in blocks if block.startswith("stages:")]
