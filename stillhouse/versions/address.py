"""Addresses of repositories and remotes: none may hold a secret, since they are logged, compiled and committed."""

from __future__ import annotations

import re

from stillhouse.errors import InputError

USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^\s/'\"]*)@")
"""The scheme of an address, and what stands before the host."""
SHORT = re.compile(r"[^\s/@]+:[^\s/@]*@")
"""How an address of git without a scheme begins that has a password: `git@host:path` has none."""


def refuse_secret(address: str, name: str) -> None:
    """Raises `InputError` for an address with a password or token; a mere user is one of ssh and the like alone."""
    found = USER.match(address.strip())
    if (found and _secret(found)) or ("://" not in address and SHORT.match(address.strip())):
        raise InputError(
            f"{name} holds a password or token before the @, which would be seen in logs and commits; leave all before "
            "the host out and give it to git by a credential helper or $GIT_ASKPASS, in a pod by the secret that the "
            "parameter git_secret names"
        )


def redact(text: str) -> str:
    """What git or DVC said, without passwords and tokens in addresses."""
    return USER.sub(lambda found: f"{found[1]}://***@" if _secret(found) else found[0], text)


def _secret(found: re.Match[str]) -> bool:
    """Whether what stands before the host may be one: over HTTP a token may stand alone."""
    return ":" in found[2] or found[1].lower() in ("http", "https")
