"""Client ids as keyed hashes: the same client has the same id, and nobody can derive the client from it.

Without the key, nobody can try addresses one by one either. Deleting the key cuts the link for good.
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
"""The header in which a program that asks for its users names them. It counts only if the service requires a token:
otherwise anybody could pose as any number of clients."""
LENGTH = 16
"""Hexadecimal digits of an id."""
LONGEST = 256
IPV6_NETWORK = 64
"""The bits of an IPv6 address that identify a client: a household has the rest to itself."""


def read_key(folder: Path, given: str) -> bytes:
    """The key that was `given`, or else the one in `folder`, which is made if it is missing."""
    if given:
        return given.encode()
    path = folder / KEY_FILE
    if not path.is_file() or not path.stat().st_size:  # an empty key would protect nothing
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "w") as new:
            new.write(secrets.token_hex(32))
    return path.read_bytes()


def client_of(request: Request, trusted: bool) -> str:
    """The client: what the header of a `trusted` caller says, or the network address; IPv6 by its network."""
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
