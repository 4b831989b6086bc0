"""The calls that releases make to a Model Registry, through its published REST API.

The package `model-registry` is not used: its version 0.3.18 supports only version v1 of the API, and the registries
that Kubeflow installs until 2026 serve only v1alpha3. The paths and bodies used here are the same in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import redact
from stillhouse.releases.model_registry.entry import FORMAT, MODEL_ARTIFACT, Entry, Properties
from stillhouse.releases.model_registry.settings import API, TOKEN_PATH, RegistrySettings

ANSWER_SECONDS = 10.0
API_VERSIONS = ("v1", "v1alpha3")
PAGE = 100
LIVE, ARCHIVED = "LIVE", "ARCHIVED"
NOT_FOUND, CONFLICT = 404, 409
REMEDIES = {
    302: f"it redirects to a login; set {TOKEN_PATH}=FILE, a file with a token, or use the address inside the cluster",
    401: f"it needs a token: write one to a file and set {TOKEN_PATH}=FILE; replace a token that has expired",
    403: "allow the token's account to read and write there",
    NOT_FOUND: "there is no Model Registry; is its address right?",
}

Plain = dict[str, Any]


class Conflict(Exception):
    """Another client has just created something with that name."""


@dataclass(frozen=True)
class Version:
    """A version of a registered model, as the registry has it."""

    id: str
    name: str
    state: str
    texts: Mapping[str, str]
    """Its text properties."""


class Registry:
    """A session with a registry. Its methods raise `Conflict` if another client was faster.

    They raise `InputError`, with the remedy, if the registry does not answer, refuses, or is something else.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        import requests

        token = settings.token()

        def authorize(request: Any) -> Any:
            if token:
                request.headers["Authorization"] = f"Bearer {token}"
            return request

        self._address = settings.address
        self._session = requests.Session()
        self._session.auth = authorize  # otherwise requests would use ~/.netrc instead
        self._root = self._find_root()

    def _find_root(self) -> str:
        """The root address of the API version that the registry serves."""
        for version in API_VERSIONS:
            root = f"{self._address}{API}{version}"
            if self._ask("GET", f"{root}/registered_models", {"pageSize": 1}, missing=version != API_VERSIONS[-1]):
                return root
        raise AssertionError("_ask raises for the last version if it is missing")

    def model(self, name: str, description: str) -> str:
        """The id of the registered model with this name, which is created if it does not exist."""
        found = self._ask("GET", f"{self._root}/registered_model", {"name": name}, missing=True)
        found = found or self._ask(
            "POST", f"{self._root}/registered_models", {"name": name, "description": description}
        )
        return str(found["id"])

    def versions(self, model: str) -> dict[str, Version]:
        """All versions of a registered model, by their names."""
        found: dict[str, Version] = {}
        asked: Plain = {"pageSize": PAGE}
        while True:
            page = self._ask("GET", f"{self._root}/registered_models/{model}/versions", asked)
            found |= {one["name"]: _version(one) for one in page["items"]}
            if not page.get("nextPageToken"):
                return found
            asked = {"pageSize": PAGE, "nextPageToken": page["nextPageToken"]}

    def create_version(self, model: str, entry: Entry) -> Version:
        new = {
            "name": entry.version,
            "description": entry.description,
            "registeredModelId": model,
            "state": LIVE,
            "customProperties": _values(entry.properties),
        }
        return _version(self._ask("POST", f"{self._root}/model_versions", new))

    def set_state(self, version: Version, state: str) -> None:
        """Changes only the state: the API leaves omitted fields unchanged."""
        self._ask("PATCH", f"{self._root}/model_versions/{version.id}", {"state": state})

    def has_artifact(self, version: Version) -> bool:
        asked = {"name": MODEL_ARTIFACT, "pageSize": PAGE}
        return bool(self._ask("GET", f"{self._root}/model_versions/{version.id}/artifacts", asked)["items"])

    def create_artifact(self, version: Version, entry: Entry) -> None:
        new = {
            "artifactType": "model-artifact",
            "name": MODEL_ARTIFACT,
            "uri": entry.uri,
            "storagePath": entry.path,
            "modelFormatName": FORMAT,
            "state": LIVE,
        }
        if run := entry.run:
            new |= {"modelSourceKind": "kfp", "modelSourceClass": "pipelinerun"}
            parts = {"Id": run["id"], "Group": run.get("namespace"), "Name": run.get("pipeline")}
            new |= {f"modelSource{part}": value for part, value in parts.items() if value}
        self._ask("POST", f"{self._root}/model_versions/{version.id}/artifacts", new)

    def _ask(self, method: str, url: str, content: Plain, *, missing: bool = False) -> Plain:
        """The registry's answer; empty if the object does not exist and may be `missing`."""
        import requests

        body: Plain = {"params": content} if method == "GET" else {"json": content}
        try:
            answer = self._session.request(method, url, timeout=ANSWER_SECONDS, allow_redirects=False, **body)
        except requests.RequestException as error:
            raise InputError(
                f"the Model Registry at {self._address} does not answer ({_reason(error)}); is its address right, and "
                "may this machine or pod reach it?"
            ) from None
        try:
            plain = answer.json()
        except ValueError:
            plain = None
        if answer.status_code == NOT_FOUND and missing:
            return {}
        if answer.status_code == CONFLICT:
            raise Conflict(url)
        if not 200 <= answer.status_code < 300:
            said = plain.get("message") if isinstance(plain, dict) else answer.reason
            remedy = REMEDIES.get(answer.status_code)
            raise InputError(
                f"the Model Registry at {self._address} refuses ({answer.status_code}): "
                f"{redact(' '.join(str(said).split()))[:300].rstrip('.')}" + (f"; {remedy}" if remedy else "")
            )
        if not isinstance(plain, dict) or not {"id", "items"} & plain.keys():
            raise InputError(f"the server at {self._address} is not a Model Registry; is its address right?")
        return plain


def _reason(error: Exception) -> str:
    """The innermost reason of an error of requests, without the object addresses that it quotes."""
    innermost = getattr(error.args[0], "reason", error.args[0]) if error.args else error
    return redact(str(innermost).rpartition(": ")[2])[:200] or type(error).__name__


def _version(plain: Plain) -> Version:
    properties = plain.get("customProperties") or {}
    texts = {name: value["string_value"] for name, value in properties.items() if "string_value" in value}
    return Version(plain["id"], plain["name"], plain.get("state", LIVE), texts)


def _values(properties: Properties) -> Plain:
    """Properties in the API's types. Numbers are doubles, since its integers have at most nine digits."""
    return {
        name: {"metadataType": "MetadataStringValue", "string_value": value}
        if isinstance(value, str)
        else {"metadataType": "MetadataDoubleValue", "double_value": value}
        for name, value in properties.items()
    }
