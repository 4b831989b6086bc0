"""Who asks, as a keyed hash: the same client has the same id, and nobody gets from the id to the client.

Without the key the addresses cannot be tried one by one either. Whoever deletes the key cuts the ties for good.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
from hashlib import sha256
from pathlib import Path

from fastapi import Request

KEY_FILE = "client.key"
HEADER = "X-Stillhouse-Client"
"""Where a program that asks for its users names them. It counts only where the service wants a token: anybody else
could be as many clients as he likes."""
LENGTH = 16
"""Hexadecimal digits of an id."""
LONGEST = 256
IPV6_NETWORK = 64
"""Bits of an IPv6 address that name a client: one house has the rest to itself."""


def read_key(folder: Path, given: str) -> bytes:
    """The key that was `given`, or else the one in `folder`, which is made where there is none."""
    if given:
        return given.encode()
    path, partial = folder / KEY_FILE, folder / f".{KEY_FILE}.partial"
    if path.exists() and (known := path.read_bytes()):  # an empty one is none: anybody could try addresses by it
        return known
    partial.unlink(missing_ok=True)
    file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "wb") as new:
        new.write(secrets.token_hex(32).encode())
        new.flush()
        os.fsync(new.fileno())
    partial.replace(path)
    return path.read_bytes()


def client_of(request: Request, trusted: bool) -> str:
    """Who asks: what the header says of a `trusted` caller, or the network address; IPv6 by its network."""
    named = request.headers.get(HEADER, "")[:LONGEST] if trusted else ""
    if named:
        return f"named {named}"
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6:
        return str(ipaddress.ip_network((address, IPV6_NETWORK), strict=False))
    return host


def client_id(client: str, key: bytes) -> str:
    return hmac.new(key, client.encode("utf-8", "replace"), sha256).hexdigest()[:LENGTH]
