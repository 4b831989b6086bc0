"""Publishes a release to a store: writes a new table, checks it, and then puts it into use at once for everyone.

Until then the old release answers, whatever happens. A repeated publish begins again.

Shape suffixes: B rows of a batch, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.errors import InputError
from stillhouse.releases.tags import identity_of
from stillhouse.serving.release import NAME_LENGTH, Release
from stillhouse.serving.source import PARTS
from stillhouse.serving.stores.store import LARGEST, TEXTS, Row, Store, digest_of

BATCH = 2000
"""Rows that are written together, completely or not at all."""
Say = Callable[[str], None]


def table_of(release: Release, name: str) -> str:
    """The table of a release: releases of the same corpus, retriever and index share one."""
    return f"{name}_{identity_of({part: {'digest': release.digests[part]} for part in PARTS})[:NAME_LENGTH]}"


def publish(release: Release, store: Store, say: Say) -> str:
    """Publishes a release and returns its table.

    Raises `InputError` if another process is publishing this release, and if the store does not hold what was written.
    """
    table = table_of(release, store.name)
    with store.locked(table):
        record = store.notes().get(table) or _write(release, store, table, say)
        live = store.live()
        if live != table:
            record |= {"previous": live}
        store.note(table, record)
        if live != table:
            store.swap(table)
    return table


def roll_back(store: Store) -> str:
    """Puts the release before the live one into use and returns its table. Raises `InputError` if there is none."""
    releases = store.notes()
    before = str(releases.get(store.live(), {}).get("previous", ""))
    if before not in releases:
        raise InputError(f"{store.address}#{store.name} has no release before the one in use; publish another")
    store.swap(before)
    return before


def _write(release: Release, store: Store, table: str, say: Say) -> dict[str, Any]:
    """Writes and checks a table; returns its record. What an interrupted publish left is written again."""
    store.drop(table)
    store.create(table, release.index.width)
    digest = 0
    for start, rows, vectors_BD in batches(release):
        digest += digest_of(rows, vectors_BD)
        store.put(table, rows, vectors_BD)
        say(f"{start + len(rows):,} of {len(release.passages):,} passages")
    say("building the store's index")
    store.finish(table)
    say("checking the store's content")
    count = held = 0
    for rows, vectors_BD in store.scan(table):
        count += len(rows)
        held += digest_of(rows, vectors_BD)
    try:
        refuse_other(store.address, len(release.passages), digest, count, held)
    except InputError:
        store.drop(table)
        raise
    return {
        "model": release.digests["retriever"],
        "digests": {part: release.digests[part] for part in PARTS},
        "width": release.index.width,
        "passages": count,
        "digest": f"{held % LARGEST:032x}",
    }


def refuse_other(place: str, passages: int, digest: int, held: int, held_digest: int) -> None:
    """Raises `InputError` unless as many passages as were written are held, with the same sum of digests."""
    if (held, held_digest % LARGEST) != (passages, digest % LARGEST):
        raise InputError(
            f"{place} does not hold what was written: {held:,} passages of {passages:,}, or other content; it was "
            "removed, so run the command again"
        )


def batches(release: Release) -> Iterator[tuple[int, list[Row], NDArray[np.float32]]]:
    """The passages of a release with their vectors [B, D]: the first one's place, the rows, the vectors."""
    for start in range(0, len(release.passages), BATCH):
        places = range(start, min(start + BATCH, len(release.passages)))
        rows = release.passages.at(places, *TEXTS)
        for row, fields in zip(rows, release.passages.fields_at(places)):
            row["fields"] = fields
        yield start, rows, release.index.vectors(np.array(places, dtype=np.int32))
