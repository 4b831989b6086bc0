"""A write-ahead log of documents: what was acknowledged is on the disk.

The file begins with a line that says what it is. A record is 16 bytes (its length, the CRC-32 of its JSON, a mark and
the CRC-32 of those 12 bytes, little-endian) and one JSON object: {"put": [documents], "delete": [ids]}.
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
    """The log could not be brought back to its last whole record; a restart reads it anew."""


class DocumentLog:
    """The log in a folder, which is made where it is missing; `records` are those that were there.

    `torn` is how many bytes of a last record that was never acknowledged were dropped. Raises `InputError` where
    another process has the log open, or it is damaged.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"{self.path} is in use by another service; name another folder") from None
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
        """Returns once the record is on the disk. Raises `OSError`, and then the log is as it was, or `LogBroken`."""
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
            # A part of a record before the next one would be a damaged log.
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

    What comes behind it was being written when the process ended, and was never acknowledged. Raises `InputError` where
    a record that was written whole is damaged.
    """
    if BEGIN.startswith(data):
        return [], 0  # ended before the first line was whole
    if not data.startswith(BEGIN):
        raise InputError(f"{path} is no log of documents; give --documents another folder")
    records, place = [], len(BEGIN)
    for end, record in _records(data, place, path):
        records.append(record)
        place = end
    return records, place


def _records(data: bytes, place: int, path: Path) -> Iterator[tuple[int, Record]]:
    while len(data) - place >= HEAD.size:
        length, checksum, mark, own = HEAD.unpack_from(data, place)
        # The rest is copied for it, so that it is looked at only where a record's own head is empty.
        if not any(data[place : place + HEAD.size]) and not any(data[place:]):
            return  # a file system that had given the room and not yet written to it
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
    """What a log comes to: each id with its document, or None where it was deleted."""
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
        f"{path} is damaged at byte {place:,}: nothing of it was changed; put a copy of it back, or give --documents "
        "an empty folder and send the documents again"
    )


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
