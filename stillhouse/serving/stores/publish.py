"""Publishes a release to a store: writes a new table, checks it, and then puts it into use at once for everyone.

Until then the old release answers, whatever happens. A repeated publish goes on where the last one was interrupted. For
OpenSearch and Elasticsearch it writes a file in their bulk format: a line with the index and id, then the passage.

Shape suffixes: B rows of a batch, D width.
"""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.core.own_files import own_file
from stillhouse.releases.tags import identity_of
from stillhouse.serving.release import NAME_LENGTH, Ranked, Release
from stillhouse.serving.source import PARTS
from stillhouse.serving.stores.searcher import CHANGES, DOCUMENT, RELEASE, apply_changes
from stillhouse.serving.stores.store import LARGEST, TEXTS, Row, Store, digest_of

BATCH = 2000
"""Rows that are written together, completely or not at all."""
CANARIES = 16
"""How many of the corpus's questions a store is asked."""
DEPTH = 10
"""How many passages of a question are compared."""
LEAST_OVERLAP = 0.8
"""The least share of them that the store must find."""
SAME_SCORE = 1e-3
"""Scores that differ by less may be the same, computed in another order."""
SCHEME = "opensearch:"


def table_of(release: Release, name: str) -> str:
    """The table of a release: releases of the same corpus, retriever and index share one."""
    return f"{name}_{identity_of({part: {'digest': release.digests[part]} for part in PARTS})[:NAME_LENGTH]}"


def publish(release: Release, store: Store, context: Context, forget_changes: bool = False) -> str:
    """Publishes a release and returns its table.

    What was added to the store or deleted from it since is applied to the new table too, or forgotten. Raises
    `InputError` if another process is publishing this release, and if the store does not hold what was written.
    """
    table = table_of(release, store.name)
    with store.locked(table):
        store.create(table, release.index.width)
        record, live = store.notes(RELEASE).get(table, {}), store.live()
        known = bool(record) and store.count(table) > 0  # else it was never written whole, or people removed it
        if not known:
            store.note(RELEASE, {table: None})
            with store.locked(CHANGES, wait=True):
                _lacks_changes(store, table)
            record |= _write(release, store, table, context)
        if live != table:
            record |= {"previous": live}
        store.note(RELEASE, {table: record})
        with store.locked(CHANGES, wait=True):
            changes = store.notes(DOCUMENT)
            if forget_changes:
                _lacks_changes(store, table)  # in case of a kill
                _forget(release, store, table, changes)
                store.note(DOCUMENT, dict.fromkeys(changes))
            else:
                apply_changes(store, release.encode_passages, table, record["titles"], changes)
            if live != table or not known:
                store.swap(table)
    return table


def roll_back(store: Store) -> str:
    """Puts the release before the live one into use and returns its table. Raises `InputError` if there is none."""
    releases = store.notes(RELEASE)
    before = str(releases.get(store.live(), {}).get("previous", ""))
    if before not in releases:
        raise InputError(f"{store.address}#{store.name} has no release before the one in use; publish another")
    store.swap(before)
    return before


def _write(release: Release, store: Store, table: str, context: Context) -> dict[str, Any]:
    """Writes and checks what a table lacks; returns its record."""
    present = store.count(table)
    there = present // BATCH * BATCH
    digest = count = held = 0
    with context.bar("writing", len(release.passages), "passage", there) as bar:
        for start, rows, vectors_BD in batches(release):
            digest += digest_of(rows, vectors_BD)
            if start >= there:
                store.put(table, rows, vectors_BD, fresh=start >= present)
                bar.update(len(rows))
    context.log("building the store's index")
    store.finish(table)
    with context.bar("checking", len(release.passages), "passage") as bar:
        for rows, vectors_BD in store.scan(table):
            count += len(rows)
            held += digest_of(rows, vectors_BD)
            bar.update(len(rows))
    try:
        refuse_other(store.address, len(release.passages), digest, count, held)
    except InputError:
        store.drop(table)
        raise
    _check_canaries(release, store, table)
    return {
        "model": release.digests["retriever"],
        "digests": {part: release.digests[part] for part in PARTS},
        "width": release.index.width,
        "titles": release.titles,
        "passages": count,
        "digest": f"{held % LARGEST:032x}",
    }


def _forget(release: Release, store: Store, table: str, changed: Collection[str]) -> None:
    """Makes the passages of these ids those of the release's corpus again."""
    others = set(changed)
    for _, rows, vectors_BD in batches(release) if changed else ():
        own = [place for place, row in enumerate(rows) if row["passage_id"] in changed]
        if own:
            store.put(table, [rows[place] for place in own], vectors_BD[own])
            others -= {rows[place]["passage_id"] for place in own}
    store.remove(table, sorted(others))


def _lacks_changes(store: Store, table: str) -> None:
    """Notes that a table lacks every change."""
    found = {key: of for key, of in store.notes(DOCUMENT).items() if table in of["in"]}
    store.note(DOCUMENT, {key: of | {"in": [name for name in of["in"] if name != table]} for key, of in found.items()})


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


def _check_canaries(release: Release, store: Store, table: str) -> None:
    """Raises `InputError` if the release's own index finds better passages than the store for some questions.

    They are the corpus's first ones, or in a corpus without questions the texts of its first passages. Scores are
    compared, since passages with the same text may come in any order.
    """
    some = range(min(CANARIES, len(release.passages)))
    texts = release.questions(CANARIES) or [row["text"] for row in release.passages.at(some, "text")]
    vectors_QD = release.encode(release.tokenize(texts, "query"), "query")
    how = Ranked(DEPTH, bm25=0.0, documents=False)
    shares = []
    for vector_D, expected in zip(vectors_QD, release.rank(texts, vectors_QD, [how] * len(texts))):
        ranked = store.search(table, vector_D, DEPTH)
        least = expected.scores[-1] - SAME_SCORE * max(1, abs(expected.scores[-1]))
        shares.append(sum(score >= least for _, score in ranked) / len(expected.scores))
    if np.mean(shares) < LEAST_OVERLAP:
        raise InputError(
            f"{store.address} finds {np.mean(shares):.0%} of the first {DEPTH} passages that the release's own index "
            f"finds for {len(texts)} queries, and at least {LEAST_OVERLAP:.0%} is required; build a more exact index "
            f"of its table {table}, and run the command again"
        )


def write_bulk(release: Release, address: str) -> str:
    """Writes and checks the file of an address `opensearch:FILE#NAME`, all or nothing; returns the index's name."""
    path, _, name = address.removeprefix(SCHEME).partition("#")
    index = table_of(release, name or "stillhouse")
    digest = held = held_digest = 0
    with own_file(Path(path)) as place:
        with place.open("w", encoding="utf-8") as file:
            for _, rows, vectors_BD in batches(release):
                digest += digest_of(rows, vectors_BD)
                for row, vector_D in zip(rows, vectors_BD):
                    action = {"index": {"_index": index, "_id": row["passage_id"]}}
                    file.write(f"{json.dumps(action)}\n{json.dumps(row | {'vector': vector_D.tolist()})}\n")
        with place.open(encoding="utf-8") as lines:
            for _, line in zip(lines, lines):  # two lines each
                row = json.loads(line)
                held += 1
                held_digest += digest_of([row], np.array([row["vector"]], dtype=np.float32))
        refuse_other(path, len(release.passages), digest, held, held_digest)
    return index
