"""A source that is read in parts gives the same corpus as one reading, byte for byte, wherever it is divided."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sources_to_damage import SOURCES, write_files

from stillhouse.core.artifacts import write_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.checks import run_checks
from stillhouse.corpus.cleaning_parts import Several, part_folder
from stillhouse.corpus.ingestion import ingest_source
from stillhouse.corpus.settings import IngestSettings, Thresholds
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.labels import with_queries
from stillhouse.corpus.sources.rows import Source, with_splits
from stillhouse.corpus.store import Corpus

CHOICES = IngestSettings(queries="source", dev_fraction=0)
FEW = settings(max_examples=20, deadline=None)
SIZES = st.integers(1, 120)


def corpus_of(source: Source, work: Path | None = None, part_bytes: int = 1) -> tuple[Any, dict[str, bytes]]:
    """Return the facts and the tables of a corpus; with `work`, it is read in parts."""
    with tempfile.TemporaryDirectory() as folder:
        several = Several(map, work, part_bytes=part_bytes) if work else None
        facts = ingest_source(source, CHOICES, Path(folder), several=several)
        return facts, {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def refused_or(source: Source, *where: Any) -> Any:
    try:
        return corpus_of(source, *where)
    except InputError as error:
        return str(error)


def hold(location: Path, part_bytes: int, format: str = "auto") -> int:
    """Check that parts give the same corpus or error as one reading. Return the number of parts."""
    with tempfile.TemporaryDirectory() as work:
        parts = refused_or(open_source(str(location), format), Path(work), part_bytes)
        assert parts == refused_or(open_source(str(location), format))
        return len(list(Path(work).glob("*/[0-9]*")))


@pytest.mark.parametrize("format", SOURCES)
@pytest.mark.parametrize("part_bytes", [1, 50, 1 << 20])
def test_every_format(format: str, part_bytes: int, tmp_path: Path) -> None:
    hold(write_files(SOURCES[format], tmp_path / "source"), part_bytes)


QUOTED = st.sampled_from(
    [
        b"id\ttext\ttitle",
        b'1\t"a ""b"""\tt',
        b'2\t"open\tt',
        b"goes on",
        b'ends"\tt',
        b"3\tplain\tt",
        b'"',
        b"",
        b'4\tx"y\tt',
        b'5\t"a\tb"\tt',
        b"\xff",
    ]
)


@FEW
@given(st.lists(QUOTED, max_size=12), SIZES, st.sampled_from(["psgs_w100.tsv", "passages.tsv"]))
@example([b"id\ttext\ttitle", b'2\t"open\tt', b"goes on", b'ends"\tt', b"3\tplain\tt"], 1, "psgs_w100.tsv")
def test_tab_separated_rows_over_several_lines(lines: list[bytes], part_bytes: int, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        hold(write_files({name: b"\n".join([b"id\ttext\ttitle", *lines, b""])}, Path(folder)), part_bytes)


@FEW
@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "", None]), st.sampled_from("abxy")), max_size=20
    ),
    st.integers(1, 4),
    SIZES,
)
def test_row_groups(rows: list[tuple[str, str | None, str]], group: int, part_bytes: int) -> None:
    """The article id of a passage is its own id, the id of another passage, or neither."""
    with tempfile.TemporaryDirectory() as folder:
        ids, texts, articles = (list(column) for column in zip(*rows)) if rows else ([], [], [])
        columns = {"id": pa.array(ids, pa.string()), "text": pa.array(texts, pa.string())}
        table = pa.table(columns | {"article_id": pa.array(articles, pa.string())})
        pq.write_table(table, Path(folder) / "passages.parquet", row_group_size=group)
        pq.write_table(pa.table({"source": list("abcx"), "target": list("bxyz")}), Path(folder) / "links.parquet")
        hold(Path(folder), part_bytes)


def test_a_damaged_row_group_gives_the_same_message(tmp_path: Path) -> None:
    table = pa.table({"id": [f"p{n}" for n in range(4000)], "text": [f"{n} {n * 7919}" for n in range(4000)]})
    path = tmp_path / "source" / "passages.parquet"
    path.parent.mkdir()
    pq.write_table(table, path, row_group_size=1000, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    place = pq.read_metadata(path).row_group(2).column(1).data_page_offset
    data[place : place + 40] = b"\xff" * 40
    path.write_bytes(bytes(data))
    with pytest.raises(InputError, match="is damaged after row 2,000"):
        corpus_of(open_source(str(path.parent)))
    assert hold(path.parent, 1) < 6


def test_settings_that_change_rows_change_those_of_parts(tmp_path: Path) -> None:
    source = write_files(SOURCES["beir"], tmp_path / "source")
    labels = {"queries.jsonl": b'{"_id": "n", "text": "new"}\n', "qrels/test.tsv": b"n\ta\t1\n"}
    asked = write_files(labels, tmp_path / "asked")

    def opened() -> Source:
        return with_queries(with_splits(open_source(str(source)), {"test": "dev"}), "test_queries", asked)

    facts, tables = corpus_of(opened(), tmp_path / "work", 1)
    assert facts["queries"]["dev"] and facts["queries"]["test"] == 1
    assert (facts, tables) == corpus_of(opened())


def test_one_folder_may_give_dev_and_test_queries(tmp_path: Path) -> None:
    source = write_files({"corpus.jsonl": SOURCES["beir"]["corpus.jsonl"]}, tmp_path / "source")
    queries = b'{"_id": "d", "text": "one"}\n{"_id": "t", "text": "two"}\n'
    labels = {"queries.jsonl": queries, "qrels/dev.tsv": b"d\ta\t1\n", "qrels/test.tsv": b"t\ta\t1\n"}
    opened = with_queries(open_source(str(source)), "dev_queries", asked := write_files(labels, tmp_path / "asked"))
    (folder := tmp_path / "corpus").mkdir()
    facts = ingest_source(with_queries(opened, "test_queries", asked), CHOICES, folder)
    assert (facts["queries"]["dev"], facts["queries"]["test"]) == (1, 1)
    write_manifest(folder, "ingest", {}, {}, facts)
    checks = run_checks(Corpus.open(folder), Thresholds())
    assert [check.value for check in checks if check.name == "rejected_query_fraction"] == [0.0]


def test_finished_parts_are_reused_unless_a_file_changed(tmp_path: Path) -> None:
    source = write_files(SOURCES["beir"], tmp_path / "source")
    read: list[str] = []

    def counted(function: Any, items: Any) -> Any:
        items = list(items)
        read.extend(item[0] for item in items if isinstance(item, tuple) and isinstance(item[0], str))
        return map(function, items)

    several = Several(counted, tmp_path / "work", part_bytes=1)
    first = ingest_source(open_source(str(source)), CHOICES, folder(tmp_path / "one"), several=several)
    [root] = (tmp_path / "work").iterdir()
    stamps = {path.name: path.stat().st_mtime_ns for path in root.iterdir()}
    assert len(stamps) == len(read) > 2
    assert ingest_source(open_source(str(source)), CHOICES, folder(tmp_path / "two"), several=several) == first
    assert {path.name: path.stat().st_mtime_ns for path in root.iterdir()} == stamps
    (source / "corpus.jsonl").write_bytes(b'{"_id": "a", "text": "new"}\n')
    changed = ingest_source(open_source(str(source)), CHOICES, folder(tmp_path / "three"), several=several)
    assert changed["passages"] == 1 and len(list((tmp_path / "work").iterdir())) == 2


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_part_is_complete_or_absent(tmp_path: Path) -> None:
    target = tmp_path / "000001"
    with pytest.raises(RuntimeError), part_folder(target) as staging:
        (staging / "half").write_text("")
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with part_folder(target) as first, part_folder(target) as second:
        (first / "file").write_text("first")
        (second / "file").write_text("second")
    assert [path.name for path in tmp_path.iterdir()] == ["000001"]
    assert [path.name for path in target.iterdir()] == ["file"]
