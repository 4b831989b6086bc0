"""How a person or a pod is let in to Kubeflow Pipelines: the token that is sent along, and what a refusal asks for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from stillhouse.errors import InputError
from stillhouse.remote.address import redact

ENDPOINT = "KF_PIPELINES_ENDPOINT"
TOKEN_PATH = "KF_PIPELINES_SA_TOKEN_PATH"
PROJECTED_TOKEN = "/var/run/secrets/kubeflow/pipelines/token"
AUDIENCE = "pipelines.kubeflow.org"
REMEDIES = {
    401: f"it wants a token. Outside the cluster, write one to a file, `kubectl -n NAMESPACE create token ACCOUNT "
    f"--audience {AUDIENCE} > FILE`, and set {TOKEN_PATH}=FILE; one that has expired is made anew. In a pod, mount a "
    f"token projected for the audience {AUDIENCE} at {PROJECTED_TOKEN}",
    403: "let the account of the token create runs in that namespace, or give --namespace one where it may",
}
"""What to do about a status; docs/kubeflow.md says which account."""


def token_file() -> Path | None:
    """The file of the token to send along; None where there is none. Raises `InputError` for one that is missing."""
    given = os.environ.get(TOKEN_PATH, "")
    path = Path(given or PROJECTED_TOKEN)
    if path.is_file():
        return path
    if given:
        raise InputError(f"${TOKEN_PATH} is {given}, and there is no such file; write the token there, or unset it")
    return None


def remedy_of(status: int | None) -> str:
    """What to do about a refusal, after `: `; "" where the server's own words have to do."""
    remedy = REMEDIES.get(status or 0, "")
    return f": {remedy}" if remedy else ""


def refused(what: str, error: Any) -> InputError:
    """What the API server refuses, an `ApiException`, with its reason and what to do about it."""
    return InputError(f"Kubeflow Pipelines refuses {what} ({error.status}): {reason(error)}{remedy_of(error.status)}")


def reason(error: Any) -> str:
    """What the server says for a person, of all that it answers."""
    try:
        content = json.loads(error.body)
        text = str(content.get("message") or content["error"])
    except (ValueError, TypeError, KeyError, AttributeError):
        text = str(error.body or error.reason or "it gives no reason")
    return redact(" ".join(text.split()))[:400].rstrip(".")
