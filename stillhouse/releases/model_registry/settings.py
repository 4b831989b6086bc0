"""The Model Registry for releases, configured by environment variables; on a cluster, those of the pod.

| variable | meaning |
|---|---|
| `STILLHOUSE_MODEL_REGISTRY` | the registry: `http://model-registry-service.kubeflow:8080`; unset: none |
| `STILLHOUSE_MODEL_REGISTRY_MODEL` | the model's name there; by default the last two words of the git remote |
| `STILLHOUSE_MODEL_REGISTRY_TOKEN_PATH` | a file with the token |
| `STILLHOUSE_MODEL_REGISTRY_TOKEN` | the token itself, for a pod that reads it from a secret |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import has_host, refuse_secret

ADDRESS = "STILLHOUSE_MODEL_REGISTRY"
MODEL = "STILLHOUSE_MODEL_REGISTRY_MODEL"
TOKEN_PATH = "STILLHOUSE_MODEL_REGISTRY_TOKEN_PATH"
TOKEN = "STILLHOUSE_MODEL_REGISTRY_TOKEN"
API = "/api/model_registry/"
"""The prefix of the registry's own paths; an address may end with it, as the one in a browser does."""


@dataclass(frozen=True)
class RegistrySettings:
    """`model` "" = named after the git remote."""

    address: str
    model: str = ""
    token_path: Path | None = None
    given_token: str = field(default="", repr=False)

    def token(self) -> str:
        """The token to send, or "" for none. Raises `InputError` for a file that cannot be read."""
        path = self.token_path
        if path is None:
            return self.given_token
        try:
            return path.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise InputError(
                f"the token of the Model Registry cannot be read from {path} ({why}); write it there, or unset "
                f"{TOKEN_PATH}"
            ) from None


def registry_settings(environment: Mapping[str, str] = os.environ) -> RegistrySettings | None:
    """The settings in the environment; None if it names no registry. Raises `InputError` for invalid values."""
    address = environment.get(ADDRESS, "").strip()
    if not address:
        return None
    refuse_secret(address, ADDRESS, f"write the token to a file that {TOKEN_PATH} names")
    if not has_host(address):
        raise InputError(f"{ADDRESS} is {address!r}; give a URL like http://model-registry-service.kubeflow:8080")
    token = environment.get(TOKEN_PATH, "")
    return RegistrySettings(
        address.split(API)[0].rstrip("/"),
        environment.get(MODEL, "").strip(),
        Path(token) if token else None,
        environment.get(TOKEN, "").strip(),
    )
