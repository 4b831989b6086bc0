"""A write-ahead log of documents: whatever was acknowledged is on the disk.

The file begins with a line that identifies it. A record is 16 bytes (its length, the CRC-32 of its JSON, a mark and the
CRC-32 of those 12 bytes, little-endian) and one JSON object: {"put": [documents], "delete": [ids]}.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stillhouse.errors import InputError

FILE = "documents.log"
BEGIN = b"stillhouse documents 1\n"
MARK = 0x53574C31
HEAD = struct.Struct("<IIII")
Record = dict[str, Any]
Document = dict[str, str]
"""passage_id, article_id, title and text."""


class LogBroken(Exception):
    """The log could not be restored to its last whole record; a restart reads it again."""


class DocumentLog:
    """The log in a folder, which is made if it is missing; `records` are those that it already held.

    `torn` is the number of bytes of a last, never acknowledged record that were dropped. Raises `InputError` if another
    process has the log open, or if it is damaged.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"{self.path} is in use by another service; choose another folder") from None
            data = self.path.read_bytes()
            self.records, self.size = read_log(data, self.path)
            self.torn = len(data) - self.size
            if self.torn:
                os.ftruncate(self._file, self.size)
            if not self.size:
                self._write(BEGIN)
                _sync_folder(folder)
        except BaseException:
            self.close()
            raise
        self._broken = False

    def append(self, record: Record) -> None:
        """Returns once the record is on the disk. Raises `OSError`, after which the log is unchanged, or
        `LogBroken`."""
        if self._broken:
            raise LogBroken
        self._write(packed(record))

    def _write(self, data: bytes) -> None:
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self._file, data[done:], self.size + done)
            os.fsync(self._file)
        except OSError:
            # A partial record before the next one would damage the log.
            try:
                os.ftruncate(self._file, self.size)
                os.fsync(self._file)
            except OSError:
                self._broken = True
            raise
        self.size += len(data)

    def close(self) -> None:
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
            self._file = -1


def packed(record: Record) -> bytes:
    content = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
    head = struct.pack("<III", len(content), zlib.crc32(content), MARK)
    return head + struct.pack("<I", zlib.crc32(head)) + content


def read_log(data: bytes, path: Path) -> tuple[list[Record], int]:
    """The whole records of a log, and where the last one ends.

    Whatever follows was being written when the process ended, and was never acknowledged. Raises `InputError` if a
    record that was written whole is damaged.
    """
    if BEGIN.startswith(data):
        return [], 0  # ended before the first line was whole
    if not data.startswith(BEGIN):
        raise InputError(f"{path} is not a log of documents; choose another folder with --documents")
    records, place = [], len(BEGIN)
    for end, record in _records(data, place, path):
        records.append(record)
        place = end
    return records, place


def _records(data: bytes, place: int, path: Path) -> Iterator[tuple[int, Record]]:
    while len(data) - place >= HEAD.size:
        length, checksum, mark, own = HEAD.unpack_from(data, place)
        # The check copies the rest of the data, so it is made only if a record's own head is empty.
        if not any(data[place : place + HEAD.size]) and not any(data[place:]):
            return  # space that the file system allocated but had not written yet
        if mark != MARK or own != zlib.crc32(data[place : place + 12]):
            raise _damaged(path, place)
        begin, end = place + HEAD.size, place + HEAD.size + length
        if end > len(data):
            return
        if zlib.crc32(data[begin:end]) != checksum:
            raise _damaged(path, place)
        yield end, json.loads(data[begin:end])
        place = end


def replayed(records: Sequence[Record]) -> dict[str, Document | None]:
    """The final state of a log: each id with its document, or None if it was deleted."""
    found: dict[str, Document | None] = {}
    for record in records:
        for document in record.get("put", ()):
            found.pop(document["passage_id"], None)
            found[document["passage_id"]] = document
        for id in record.get("delete", ()):
            found[id] = None
    return found


def _damaged(path: Path, place: int) -> InputError:
    return InputError(
        f"{path} is damaged at byte {place:,}, and was left unchanged; restore a copy of it, or give --documents "
        "an empty folder and send the documents again"
    )


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
