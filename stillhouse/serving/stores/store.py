"""What a vector store must do to hold releases, and the stores there are.

A store holds a table per release, `NAME_<digest>`, and beside the tables *notes*: JSON values by kind and key. The kind
`release` describes each table, and `document` holds what was added or deleted since. One table is live.

Shape suffixes: B rows of a batch, D width.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import redact, refuse_secret
from stillhouse.corpus.sources.text_encoding import is_unicode

Row = dict[str, Any]
"""A passage: its `TEXTS`, and `fields`, a dictionary."""
TEXTS = ("passage_id", "title", "text", "article_id", "section")
LARGEST = 1 << 128
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
STORES = {
    "postgresql": ("pgvector", "Postgres", "pgvector"),
    "qdrant": ("qdrant", "Qdrant", "qdrant"),
    "lancedb": ("lance", "Lance", "lancedb"),
}
"""The scheme of each store's address: its module here with its class, and the extra that it needs."""
REMEDIES = (
    (r"extension .vector", "install pgvector on the server (package postgresql-NN-pgvector of apt.postgresql.org)"),
    (
        r"no space left|disk.{0,3}full|could not (extend|write)|enospc",
        "its disk is full: free some space there and run the command again",
    ),
    (
        r"password|authenti|unauthori|forbidden|permission denied|api.key|access.?key|\b40[13]\b",
        "give the right user and password or key, in {secrets}",
    ),
    (
        r"refused|time.?out|timed out|translate|resol|unreachable|connect|starting up|terminat",
        "check the address, and that the store runs",
    ),
)
"""Patterns of a store's own error, and what helps."""


def rows_of(documents: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Documents as whole rows. Raises `InputError` if an id or a text is missing, and for what JSON cannot hold."""
    rows = [dict.fromkeys(TEXTS, "") | {"fields": {}} | dict(each) for each in documents]
    for row in rows:
        try:
            sound = is_unicode(json.dumps(row, ensure_ascii=False, allow_nan=False))
        except ValueError:
            sound = False
        if not (sound and row["passage_id"].strip() and row["text"].strip()):
            raise InputError("a document has no passage_id or no text, or is not valid JSON; correct it")
    return rows


class Store(Protocol):
    """One vector store. Every method raises `InputError` if the store refuses, is full or does not answer."""

    name: str
    address: str

    def notes(self, kind: str) -> dict[str, Any]:
        """The notes of a kind by their keys."""

    def note(self, kind: str, values: Mapping[str, Any]) -> None:
        """Writes notes; None removes one."""

    def create(self, table: str, width: int) -> None:
        """Creates an empty table, unless it exists."""

    def drop(self, table: str) -> None:
        """Removes a table."""

    def count(self, table: str) -> int:
        """The number of rows."""

    def put(self, table: str, rows: Sequence[Row], vectors_BD: NDArray[np.float32], fresh: bool = False) -> None:
        """Writes rows, in place of those with their ids; with `fresh`, there are none. All or nothing is written."""

    def remove(self, table: str, passage_ids: Sequence[str]) -> None:
        """Removes rows."""

    def finish(self, table: str) -> None:
        """Builds the index of a complete table, unless it exists."""

    def scan(self, table: str) -> Iterator[tuple[list[Row], NDArray[np.float32]]]:
        """All rows with their vectors, in any order."""

    def search(self, table: str, vector_D: NDArray[np.float32], top: int) -> list[tuple[Row, float]]:
        """The `top` rows with the largest inner products, best first, with these."""

    def live(self) -> str:
        """The table in use; "" before the first release."""

    def swap(self, table: str) -> None:
        """Puts a table into use, for every reader at the same moment."""

    def locked(self, what: str, wait: bool = False) -> AbstractContextManager[None]:
        """Keeps others out of the part `what` until the block ends. While another keeps it, waits or raises
        `InputError`."""


def open_store(address: str) -> Store:
    """Opens the store of an address such as `postgresql://host/database`, `qdrant:http://host:6333` or
    `lancedb:folder`; `#name` at its end names the releases, by default `stillhouse`.

    Raises `InputError` for an unknown store, a missing extra, an address with a password, and if it does not answer.
    """
    place, _, name = address.partition("#")
    scheme, _, rest = place.partition(":")
    name = name or "stillhouse"
    if scheme not in STORES or not rest:
        raise InputError(
            f"{redact(address)!r} is not a store address; give postgresql://HOST/DATABASE, qdrant:URL, qdrant:FOLDER, "
            "lancedb:FOLDER or, to publish, opensearch:FILE"
        )
    if not NAME.fullmatch(name):
        raise InputError(f"the name #{name} may only have small letters, digits and _, at most 40; choose another")
    module, kind, extra = STORES[scheme]
    try:
        store = import_module(f"stillhouse.serving.stores.{module}")
    except ModuleNotFoundError as error:
        raise InputError(f"{scheme} needs {error.name}: pip install 'stillhouse[{extra}]'") from None
    refuse_secret(place, "the address of the store", f"give it in {store.SECRETS}")
    return cast(Store, getattr(store, kind)(place if scheme == "postgresql" else rest, name))


@contextmanager
def store_errors(address: str, kinds: tuple[type[Exception], ...], secrets: str) -> Iterator[None]:
    """Turns a store's own errors into one sentence with the remedy."""
    try:
        yield
    except InputError:
        raise
    except kinds as error:
        said = " ".join(redact(str(error) or type(error).__name__).split())
        found = (text for pattern, text in REMEDIES if re.search(pattern, said, re.IGNORECASE))
        remedy = next(found, "correct this and run the command again").format(secrets=secrets)
        raise InputError(f"the store {address} says: {said[:300].rstrip('.')}; {remedy}") from error


def digest_of(rows: Iterable[Row], vectors_BD: NDArray[np.float32]) -> int:
    """The sum of the digests of rows with their vectors, so that their order does not matter."""
    total = 0
    for row, vector_D in zip(rows, vectors_BD):
        # Stores keep a number's value, not whether it was written as 1 or 1.0.
        fields = json.loads(json.dumps(row["fields"]), parse_int=float)
        text = json.dumps([*(row[name] for name in TEXTS), fields], sort_keys=True)
        content = hashlib.sha256(text.encode() + vector_D.astype("<f4").tobytes())
        total += int.from_bytes(content.digest()[:16], "big")
    return total % LARGEST
