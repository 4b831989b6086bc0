"""Estimates from page headers how much memory the values of a Parquet file take, before any page is decoded.

A few bytes of a page may stand for any number of long values: a dictionary holds each value once, and with
`DELTA_BYTE_ARRAY` a value may repeat the previous one. The format and its numbers are from
https://github.com/apache/parquet-format (`parquet.thrift`), in Thrift's compact protocol.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from stillhouse.corpus.sources.thrift_compact import NO_STRUCT, Compact

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_DETAILS = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
"""The field of a page header with the details of each kind of page."""
_DELTA_BYTE_ARRAY = 7
_OF_DICTIONARY = (2, 8)
"""Encodings of a data page with indices into a dictionary."""
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_NOT_PACKED = 0

_ROW_GROUPS = 4
"""The field of a file's footer that lists the row groups."""

_LENGTH = struct.Struct("<I").unpack_from
"""The length before each value of a dictionary."""

_LONGEST_HEADER = 1 << 24
_LARGEST_LOOKED_AT = 1 << 24
"""Bytes of the largest dictionary that is examined; in a larger one, a value may be as long as the dictionary. Most
writers stop at 1 MiB."""
_WIDEST_NUMBER = 16
"""The most bytes of a number or a time."""


@dataclass(frozen=True)
class Page:
    """A page of a column. `size` is its packed or unpacked size in bytes, whichever is larger.

    A row takes `row` bytes: on average if every value is stored in full, else at most.
    """

    size: int
    row: int


def row_bytes(pages: list[Page], column: pq.ColumnSchema) -> int:
    """The bytes that a row of a column takes: n rows take at most n times this plus two pages."""
    if column.physical_type != "BYTE_ARRAY":
        return max(column.length or 0, _WIDEST_NUMBER)  # nulls take as much as a value
    return max((page.row for page in pages), default=0)


@dataclass(frozen=True)
class Chunk:
    """A column in a row group: the place of its pages in the file, their compression and the number of values."""

    begin: int
    end: int
    codec: int
    values: int


def read_chunks(file: BinaryIO) -> Iterator[list[Chunk]]:
    """The columns of each row group, in the order of the schema. Raises `ValueError` for a damaged footer."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(0, size - 8 - length))
    try:
        for group in Compact(file.read(length)).structs_of(_ROW_GROUPS):
            yield [_chunk(column.get(3)) for column in group.get(1, [])]
    except (IndexError, AttributeError, TypeError, RecursionError):
        raise ValueError(NO_STRUCT) from None


def _chunk(column: Any) -> Chunk:
    codec, values, length, begin = (_number(column, name) for name in (4, 5, 7, 9))
    dictionary = column.get(11, 0)
    if 0 < dictionary < begin:
        begin = dictionary
    return Chunk(begin, begin + length, codec, values)


def read_pages(file: BinaryIO, chunk: Chunk) -> Iterator[Page]:
    """The pages of a column in a row group. Raises `ValueError` if a page header is missing."""
    place, left = chunk.begin, chunk.values
    while left > 0 and place < chunk.end:
        header, length = _read_header(file, place)
        place += length
        kind, unpacked, packed = (_number(header, name) for name in (1, 2, 3))
        details, size, row, values = header.get(_DETAILS.get(kind, 0)), max(unpacked, packed), 0, 0
        if kind == _DICTIONARY:
            row = _longest_value(file, place, packed, unpacked, chunk.codec)
        elif kind in (_DATA, _DATA_V2):
            values, encoding = _number(details, 1), _number(details, 4 if kind == _DATA_V2 else 2)
            if encoding not in _OF_DICTIONARY:
                row = size if encoding == _DELTA_BYTE_ARRAY else -(-size // max(values, 1))
        yield Page(size, row)
        place += packed
        left -= values


def _longest_value(file: BinaryIO, place: int, packed: int, unpacked: int, codec: int) -> int:
    """Bytes of the longest value of a dictionary, or of the whole dictionary if its values are unknown."""
    size = max(packed, unpacked)
    if size > _LARGEST_LOOKED_AT:
        return size
    file.seek(place)
    data = file.read(packed)
    if codec != _NOT_PACKED:
        if codec not in _CODECS:
            return size
        try:
            data = pa.Codec(_CODECS[codec]).decompress(data, unpacked, asbytes=True)
        except (pa.ArrowException, OSError, ValueError):
            return size  # reading it will report the damage
    place = longest = 0
    while place <= len(data) - 4:
        (length,) = _LENGTH(data, place)
        place += 4 + length
        longest = max(longest, length)
    return longest if place == len(data) else size


def _number(struct: Any, name: int) -> int:
    value = struct.get(name) if isinstance(struct, dict) else None
    if not isinstance(value, int) or value < 0:
        raise ValueError(NO_STRUCT)
    return value


def _read_header(file: BinaryIO, place: int) -> tuple[dict[int, Any], int]:
    """The header at a place, as {field number: value}, and its length in bytes."""
    wanted = 1 << 12
    while True:
        file.seek(place)
        data = file.read(wanted)
        reader = Compact(data)
        try:
            return reader.struct(), reader.place
        except IndexError:
            if len(data) < wanted or wanted >= _LONGEST_HEADER:
                raise ValueError("the header of a page is cut off") from None
            wanted *= 8
        except RecursionError:
            raise ValueError(NO_STRUCT) from None
