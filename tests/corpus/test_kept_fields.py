"""The fields that `ingest` keeps of its sources: those named, typed alike from every format, and a corpus's own."""

from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.cleaning import clean
from stillhouse.corpus.cleaning_parts import Several, clean_parts
from stillhouse.corpus.settings import IngestSettings as Config
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.options import Options
from stillhouse.pipeline.steps.ingest import STEP

Write = Callable[..., Path]
NAMES = ("product", "year", "price", "new")
WANTED = {
    "product": ["vpn", "mail", None],
    "year": [2024, 2025, 2026],
    "price": [1.5, 20.0, None],
    "new": [True, False, None],
}
JSON = (
    '{"_id": "1", "text": "a", "product": "vpn", "metadata": {"year": 2024, "price": 1.5, "new": true}, "url": "u"}\n'
    '{"_id": "2", "text": "b", "product": "mail", "year": 2025, "price": 20.0, "new": false}\n'
    '{"_id": "3", "text": "c", "product": null, "year": 2026}\n'
)
CSV = "id,text,product,year,price,new\n1,a,vpn,2024,1.50,True\n2,b,mail,2025,20.00,false\n3,c,,2026,,\n"
ARTICLES = "".join(
    f'{{"_id": "{number}", "sections": [{{"paragraphs": ["{text}"]}}], {rest}}}\n'
    for number, (text, rest) in enumerate(
        [
            ("a", '"product": "vpn", "year": 2024, "price": 1.5, "new": true'),
            ("b", '"product": "mail", "year": 2025, "price": 20.0, "new": false'),
            ("c", '"year": 2026'),
        ]
    )
)
MARKDOWN = {
    "a.md": "---\ntitle: A\nproduct: vpn\nyear: 2024\nprice: 1.50\nnew: true\n---\na\n",
    "b.md": '---\nproduct: "mail"\nyear: 2025\nprice: 20.00\nnew: false\n---\nb\n',
    "c.md": "---\nproduct: ~\nyear: 2026\nprice:\n---\nc\n",
}
HTML = {
    f"{text}.html": f'<html lang="en"><head>{metas}</head><body><p>{text}</p></body></html>'
    for text, metas in {
        "a": '<meta name="product" content="vpn"><meta name=year content=2024><meta name=price content=1.50>'
        '<meta property="new" content="true"><meta charset="utf-8">',
        "b": "<meta name=product content=mail><meta name=year content=2025><meta name=price content=20>"
        "<meta name=new content=false>",
        "c": "<meta name=year content=2026>",
    }.items()
}


def fields_of(location: Path, folder: Path, names: tuple[str, ...] = NAMES, by_parts: bool = False) -> pa.Table:
    folder.mkdir()
    source, path = open_source(str(location), "auto", Options(fields=names)), folder / "passages.parquet"
    corpus = (
        clean_parts(source, Several(map, folder / "work", part_bytes=1), path)
        if by_parts
        else clean(source.rows(), path)
    )
    corpus.passages.fields.write_typed(folder, source.cells)
    return pq.read_table(folder / "fields.parquet")


@pytest.mark.parametrize(
    "files",
    [
        {"corpus.jsonl": JSON},
        {"passages.jsonl": JSON},
        {"articles.jsonl": ARTICLES},
        {"passages.csv": CSV},
        {"passages.tsv": CSV.replace(",", "\t")},
        MARKDOWN,
        HTML,
    ],
    ids=["beir", "jsonl", "articles", "csv", "tsv", "markdown", "html"],
)
def test_every_format_gives_the_same_types(files: dict[str, str], write: Write, tmp_path: Path) -> None:
    table = fields_of(write(files), tmp_path / "whole")
    assert table.select(NAMES).to_pydict() == WANTED
    assert [table.schema.field(name).type for name in NAMES] == [pa.string(), pa.int64(), pa.float64(), pa.bool_()]
    assert fields_of(tmp_path / "source", tmp_path / "parts", by_parts=True).equals(table)


def test_cells_that_are_not_all_numbers_stay_as_they_are_written(write: Write, tmp_path: Path) -> None:
    csv = "id,text,version,zip\n1,a,1.10,00501\n2,b,1.9.2,10001\n"
    table = fields_of(write({"passages.csv": csv}), tmp_path / "made", ("version", "zip"))
    assert table.to_pydict() == {"version": ["1.10", "1.9.2"], "zip": ["00501", "10001"]}


def test_parquet_keeps_dates_lists_and_numbers(tmp_path: Path) -> None:
    columns = {
        "id": ["1", "2", "3"],
        "text": ["a", None, "c"],  # the second row is rejected, so the rows are read one by one
        "date": pa.array([date(2024, 2, 29), None, date(2025, 1, 1)]),
        "tags": [["x", "y"], ["z"], None],
        "price": pa.array(["1.50", "2.00", None]).cast(pa.decimal128(5, 2)),
    }
    for texts in (columns["text"], ["a", "b", "c"]):
        pq.write_table(pa.table({**columns, "text": texts}), tmp_path / "passages.parquet")
        kept = [place for place, text in enumerate(texts) if text]
        folder = tmp_path / f"made{len(kept)}"
        table = fields_of(tmp_path / "passages.parquet", folder, ("date", "tags", "price"))
        wanted = {"date": ["2024-02-29", None, "2025-01-01"], "tags": columns["tags"], "price": [1.5, 2.0, None]}
        assert table.to_pydict() == {name: [values[place] for place in kept] for name, values in wanted.items()}


def ingested(folder: Path, **settings: Any) -> Mapping[str, Any]:
    (folder / "corpus").mkdir(parents=True)
    context = Context(folder / "work", "cpu", quiet=True)
    return STEP.run(Config(**settings), {}, {"corpus": folder / "corpus"}, context).facts


def test_a_corpus_read_as_a_source_keeps_its_fields(write: Write, tmp_path: Path) -> None:
    rows = "".join(f'{{"_id": "p{n}", "text": "text {n}", "n": {n}, "tags": ["{n % 7}"]}}\n' for n in range(9_000))
    source = write({"corpus.jsonl": rows})
    ingested(tmp_path / "first", source=str(source), fields=("n", "tags"), queries="source")
    first = pq.read_table(tmp_path / "first" / "corpus" / "fields.parquet")
    other = write({"passages.jsonl": '{"_id": "x", "text": "other"}\n{"_id": "y", "text": "more"}\n'}, folder="other")
    settings = {"source": str(tmp_path / "first" / "corpus"), "queries": "source", "distractors": str(other)}
    facts = ingested(tmp_path / "again", **settings)
    again = pq.read_table(tmp_path / "again" / "corpus" / "fields.parquet")
    assert facts["fields"] == ["n", "tags"] and again.slice(0, 9_000).equals(first)
    assert again.slice(9_000).to_pydict() == {"n": [None] * 2, "tags": [None] * 2}
    facts = ingested(tmp_path / "few", **settings, max_articles=100)
    few = tmp_path / "few" / "corpus"
    ids = pq.read_table(few / "passages.parquet")["passage_id"].to_pylist()
    numbers = pq.read_table(few / "fields.parquet")["n"].to_pylist()
    assert len(ids) < 200 and [f"p{n}" if n is not None else "" for n in numbers] == [
        id if id.startswith("p") else "" for id in ids
    ]


def test_a_field_that_no_passage_has_is_refused(write: Write, tmp_path: Path) -> None:
    source = write({"corpus.jsonl": JSON})
    assert "fields" not in ingested(tmp_path / "none", source=str(source))
    assert not (tmp_path / "none" / "corpus" / "fields.parquet").exists()
    with pytest.raises(InputError, match=r"no passage of .* has prodct;"):
        ingested(tmp_path / "wrong", source=str(source), fields=("prodct", "url"))
    with pytest.raises(InputError, match=r"passages\.csv has no column prodct; it has id, text, product"):
        fields_of(write({"passages.csv": CSV}, folder="csv"), tmp_path / "csv_made", ("prodct",))
