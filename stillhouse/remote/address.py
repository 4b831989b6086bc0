"""Addresses of repositories and remotes: none may hold a secret, since they are logged, compiled and committed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from stillhouse.errors import InputError

_KEY = r"(?:access|account|api|private|secret|shared)[_-]?key"
_NAMED = rf"[\w.%-]*(?:token|secret|passw(?:or)?d|signature|{_KEY})"
"""The name of a parameter or variable whose value is a secret, whatever stands before it: `X-Amz-Signature`."""

SECRETS: Mapping[str, re.Pattern[str]] = {
    place: re.compile(pattern, re.IGNORECASE)
    for place, pattern in {
        # With a scheme, `//` or nothing before: what follows the colon is a password, whatever the scheme.
        "before the @": r"((?:(?<=:)|(?<![^\s'\"]))//)[^\s/'\":]*:[^\s/'\"]*(?=@)",
        # A mere user is one of ssh and the like: over HTTP a token may stand alone.
        "before the @ of HTTP": r"((?:https?|webdavs?|davs?)://)[^\s/'\"]*(?=@)",
        # As `user:password@host:path` of git; `git@host:path` has none, and `image:tag@sha256:…` names a digest.
        "before the @ without a scheme": r"((?<![^\s'\"]))[^\s/@:'\"]+:[^\s/@'\"]*(?=@(?!sha\d+:))",
        "as a parameter": rf"((?<![\w.%/-]){_NAMED}=)[^\s&;#'\"<>]+",
        # Short names mean this only in the query of an address: `sig` is Azure's, `key` Google's.
        "in the query": r"([?&](?:sig|key|auth|pwd|jwt)=)[^\s&;#'\"<>]+",
        "in a header": r"(authorization['\"]?\s*[:=]\s*['\"]?(?:(?:basic|bearer|token)\s+)?)[^\s'\",]+",
        "in a header of its own": r"((?<![\w-])(?:(?:private|job|deploy|x-[a-z-]+)-token|x-api-key)['\"]?:\s*['\"]?)"
        r"[^\s'\",]+",
        "by its look": r"((?<![A-Za-z0-9]))(?:gh[opsur]_\w{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|hf_[a-z0-9]{30,})",
    }.items()
}
"""Where an address or a text has a password, token or signature: what matches after the first group is secret.

No pattern looks at a place twice, since they read whatever git, a server or a corpus made somebody say.
"""


REMEDY = (
    "give it to git by a credential helper or $GIT_ASKPASS, in a pod by the secret that the parameter git_secret "
    "names, and to storage as the environment or `dvc remote modify --local` has it"
)


def refuse_secret(address: str, name: str, remedy: str = REMEDY) -> None:
    """Raises `InputError` for an address with a password, token or signature; a user of ssh alone is none.

    `remedy` ends the message: where the secret belongs instead.
    """
    for place, secret in SECRETS.items():
        if secret.search(address.strip()):
            raise InputError(
                f"{name} holds a password or token {place}, which would be seen in logs and commits; leave it out, and "
                f"{remedy}"
            )


def redact(text: str) -> str:
    """What git, DVC or a server said, without passwords, tokens and signatures."""
    for secret in SECRETS.values():
        text = secret.sub(r"\1***", text)
    return text


def has_host(address: str) -> bool:
    """Whether an address is one of HTTP that names a host."""
    try:
        parts = urlsplit(address)
    except ValueError:  # brackets that are no IPv6 address
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
