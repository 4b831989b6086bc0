"""Access to Kubeflow Pipelines for a user or a pod: the token to send, and the remedy for a refusal."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.kubernetes_api import reason

ENDPOINT = "KF_PIPELINES_ENDPOINT"
TOKEN_PATH = "KF_PIPELINES_SA_TOKEN_PATH"
PROJECTED_TOKEN = "/var/run/secrets/kubeflow/pipelines/token"
AUDIENCE = "pipelines.kubeflow.org"
REMEDIES = {
    401: f"it requires a token. Outside the cluster, write one to a file, `kubectl -n NAMESPACE create token ACCOUNT "
    f"--audience {AUDIENCE} > FILE`, and set {TOKEN_PATH}=FILE; replace an expired one the same way. In a pod, mount a "
    f"token projected for the audience {AUDIENCE} at {PROJECTED_TOKEN}",
    403: "send the token of an account that may create runs and pipelines there, such as stillhouse-editor of the "
    "manifests, or set --namespace to one where yours may",
}
"""The remedy for each status; docs/kubeflow.md names the account."""
NO_IDENTITY = "no user identity header"
DENIED = re.compile(r"User '([^']+)' is not authorized .*?Namespace:([^,]+),Verb:([^,]+),.*?Resource:([^,]+),")
"""A missing permission. The server's status does not always say so: a refused upload is a bad request, 400."""


def token_file() -> Path | None:
    """The file of the token to send, or None. Raises `InputError` if the configured file is missing."""
    given = os.environ.get(TOKEN_PATH, "")
    path = Path(given or PROJECTED_TOKEN)
    if path.is_file():
        return path
    if given:
        raise InputError(f"${TOKEN_PATH} is {given}, which does not exist; write the token there, or unset it")
    return None


def remedy_of(status: int | None) -> str:
    """What to do about a refusal, after `: `; "" if only the server's message helps."""
    remedy = REMEDIES.get(status or 0, "")
    return f": {remedy}" if remedy else ""


def refused(what: str, error: Any) -> InputError:
    """The error for a refusal by the API server, an `ApiException`, with its reason and remedy."""
    said = reason(error)
    denied = DENIED.search(said)
    if denied:
        account, namespace, verb, kind = denied.groups()
        missing = f"{account} may not {verb} {kind} in namespace {namespace}"
        return InputError(f"Kubeflow Pipelines refuses {what}: {missing}{remedy_of(403)}")
    remedy = remedy_of(401 if NO_IDENTITY in said else error.status)
    return InputError(f"Kubeflow Pipelines refuses {what} ({error.status}): {said.rstrip('.')}{remedy}")
