"""Reads structs in Thrift's compact protocol, by field numbers: the format of Parquet's headers.

`pyarrow` reads these headers too, but aborts the process if a footer is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_WHOLE = (4, 5, 6)
_LISTS = (9, 10)
NO_STRUCT = "a header cannot be read"


class Compact:
    """Reads bytes from `place` on. Raises `IndexError` at their end and `ValueError` if they are not a struct.

    A struct becomes a dictionary. Texts are not needed and are skipped; headers contain no maps.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def struct(self) -> dict[int, Any]:
        """Reads a struct. Also raises `RecursionError`, for one that is nested too deeply."""
        return {name: self._value(kind) for name, kind in self._fields()}

    def structs_of(self, wanted: int) -> Iterator[dict[int, Any]]:
        """The structs in a field that is a list, one at a time; the other fields are skipped."""
        for name, kind in self._fields():
            if name == wanted and kind in _LISTS:
                kind, count = self._list_head()
                if kind != _STRUCT:
                    raise ValueError(NO_STRUCT)
                for _ in range(count):
                    yield self.struct()
            else:
                self._value(kind)

    def _fields(self) -> Iterator[tuple[int, int]]:
        """The number and kind of each field; the caller must read its value before the next."""
        name = 0
        while head := self._byte():
            name = name + (head >> 4) if head >> 4 else self._whole()
            yield name, head & 15

    def _value(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE):  # a field of a struct, which has no bytes of its own
            return kind == _TRUE
        if kind in _WHOLE:
            return self._whole()
        if kind == _STRUCT:
            return self.struct()
        if kind in _LISTS:
            kind, count = self._list_head()
            return [self._byte() if kind in (_TRUE, _FALSE) else self._value(kind) for _ in range(count)]
        if kind == _BYTE:
            return self._byte()
        if kind in (_BINARY, _DOUBLE):
            return self._skip(8 if kind == _DOUBLE else self._varint())
        raise ValueError(NO_STRUCT)

    def _list_head(self) -> tuple[int, int]:
        head = self._byte()
        return head & 15, self._varint() if head >> 4 == 15 else head >> 4

    def _byte(self) -> int:
        value = self._data[self.place]
        self.place += 1
        return value

    def _skip(self, count: int) -> None:
        self.place += count
        if self.place > len(self._data):
            raise IndexError

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError(NO_STRUCT)
        return value | byte << shift

    def _whole(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
