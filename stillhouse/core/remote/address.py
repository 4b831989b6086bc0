"""Addresses of repositories and remotes. They may not hold secrets, since they are logged, compiled and committed."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from stillhouse.core.errors import InputError

_KEY = r"(?:access|account|api|private|secret|shared)[_-]?key"
_NAMED = rf"[\w.%-]*(?:token|secret|passw(?:or)?d|signature|{_KEY})"
"""The name of a parameter or variable with a secret value, with any prefix: `X-Amz-Signature`."""

SECRETS: Mapping[str, re.Pattern[str]] = {
    place: re.compile(pattern, re.IGNORECASE)
    for place, pattern in {
        # After any scheme, or a bare `//`: the text after the colon is a password.
        "before the @": r"((?:(?<=:)|(?<![^\s'\"]))//)[^\s/'\":]*:[^\s/'\"]*(?=@)",
        # A user alone is harmless for ssh and the like, but over HTTP it may be a token.
        "before the @ of HTTP": r"((?:https?|webdavs?|davs?)://)[^\s/'\"]*(?=@)",
        # As in git's `user:password@host:path`; `git@host:path` has no password, and `image:tag@sha256:…` is a digest.
        "before the @ without a scheme": r"((?<![^\s'\"]))[^\s/@:'\"]+:[^\s/@'\"]*(?=@(?!sha\d+:))",
        "as a parameter": rf"((?<![\w.%/-]){_NAMED}=)[^\s&;#'\"<>]+",
        # Short names mean a secret only in the query of an address: `sig` is Azure's, `key` Google's.
        "in the query": r"([?&](?:sig|key|auth|pwd|jwt)=)[^\s&;#'\"<>]+",
        "in a header": r"(authorization['\"]?\s*[:=]\s*['\"]?(?:(?:basic|bearer|token)\s+)?)[^\s'\",]+",
        "in a header of its own": r"((?<![\w-])(?:(?:private|job|deploy|x-[a-z-]+)-token|x-api-key)['\"]?:\s*['\"]?)"
        r"[^\s'\",]+",
        "by its look": r"((?<![A-Za-z0-9]))(?:gh[opsur]_\w{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|hf_[a-z0-9]{30,})",
    }.items()
}
"""Patterns of passwords, tokens and signatures, by their place in a text. The match after the first group is secret.

Every pattern takes linear time, since they run over any text that git, a server or a corpus may cause.
"""


REMEDY = (
    "give it to git with a credential helper or $GIT_ASKPASS, in a pod with the secret that git_secret "
    "names, and to storage through the environment or `dvc remote modify --local`"
)


def refuse_secret(address: str, name: str, remedy: str = REMEDY) -> None:
    """Raises `InputError` for an address with a password, token or signature; a user of ssh alone is allowed.

    `remedy` ends the message and says where the secret belongs instead.
    """
    for place, secret in SECRETS.items():
        if secret.search(address.strip()):
            raise InputError(
                f"{name} holds a password or token {place}, which would show in logs and commits; leave it out, and "
                f"{remedy}"
            )


def redact(text: str) -> str:
    """Text from git, DVC or a server, without passwords, tokens and signatures."""
    for secret in SECRETS.values():
        text = secret.sub(r"\1***", text)
    return text


def has_host(address: str) -> bool:
    """Whether an address is an HTTP or HTTPS address with a host."""
    try:
        parts = urlsplit(address)
    except ValueError:  # brackets around something else than an IPv6 address
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
