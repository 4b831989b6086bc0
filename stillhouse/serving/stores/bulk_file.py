"""A release in the bulk format of OpenSearch and Elasticsearch: a line with the index and id, then the passage.

Shape suffixes: B rows of a batch, D width.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from stillhouse.core.own_files import own_file
from stillhouse.serving.release import Release
from stillhouse.serving.stores.publish import batches, refuse_other, table_of
from stillhouse.serving.stores.store import digest_of

SCHEME = "opensearch:"


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
