"""The tables of a corpus in docs/reference/formats.md have the columns of the code."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from documented_commands import ROOT

from stillhouse.corpus.schemas import SCHEMAS, SPARSE


@pytest.mark.parametrize(("table", "schema"), {**SCHEMAS, **SPARSE}.items())
def test_the_page_lists_the_columns_of_a_table(table: str, schema: pa.Schema) -> None:
    page = (ROOT / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
    [columns] = re.findall(rf"^\| `{table}\.parquet` \| ([^|]*) \|", page, re.MULTILINE)
    listed = re.findall(r"`(\w+)`(?: \((\w+)\))?", columns)
    assert [(name, kind or "string") for name, kind in listed] == [(field.name, str(field.type)) for field in schema]
