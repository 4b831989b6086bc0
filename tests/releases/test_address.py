"""Passwords and tokens in addresses are refused wherever an address is read, and never shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import redact, refuse_secret
from stillhouse.core.remote.dvc_source import look_up
from stillhouse.corpus.settings import IngestSettings as Config
from stillhouse.releases.refresh.plan import Parameters
from stillhouse.releases.refresh.run import Request
from stillhouse.releases.refresh.workspace import open_clone

URL = "https://bob:hush@localhost:1/x.git"
REFUSED = (
    URL,
    "https://hush@localhost/x.git",
    "HTTPS://bob:hu@sh@localhost/x",
    "ssh://git:hush@localhost/x",
    "s3://key:hush@bucket/x",
    "bob:hush@localhost:x.git",
    "git+https://hush@localhost/x",
    "webdavs://hush@localhost/x",
    "//bob:hush@localhost/x",
    "ssh://a@b:hush@localhost/x",
    "https://localhost/x.git?access_token=hush",
    "https://localhost/x.git?ref=main&private_token=hush",
    "https://localhost/x#id_token=hush",
    "https://localhost/x?X-Amz-Credential=id&X-Amz-Signature=hush&X-Amz-Expires=60",
    "https://localhost/x?x-amz-security-token=hush",
    "https://localhost/x?AWSAccessKeyId=id&Signature=hush%3D&Expires=60",
    "https://localhost/x?X-Goog-Algorithm=GOOG4&X-Goog-Signature=hush",
    "https://localhost/x?sv=2022&se=2030&sig=hush%2B",
    "https://localhost/x?key=hush",
    "https://localhost/x?client_secret=hush&a=b",
    "azure://box;AccountName=me;AccountKey=hush==",
    f"https://localhost/ghp_{'hush' * 9}/x.git",
)
SAID = {
    "Authorization: Basic aHVzaA==": "Authorization: Basic ***",
    "> authorization: bearer hush.hush.hush": "> authorization: bearer ***",
    "{'Authorization': 'Bearer hush', 'a': 'b'}": "{'Authorization': 'Bearer ***', 'a': 'b'}",
    "PRIVATE-TOKEN: hush": "PRIVATE-TOKEN: ***",
    "X-Amz-Security-Token: hush": "X-Amz-Security-Token: ***",
    "GET http://h/x?access_token=hush&page=2 gave 403": "GET http://h/x?access_token=***&page=2 gave 403",
    "'https://h/x?se=1&sig=hush'": "'https://h/x?se=1&sig=***'",
    "no access with AWS_SECRET_ACCESS_KEY=hush there": "no access with AWS_SECRET_ACCESS_KEY=*** there",
    "could not read bob:hush@h:x.git": "could not read ***@h:x.git",
    "ssh://git@h/x, https://u:hush@h/x": "ssh://git@h/x, https://***@h/x",
}
KEPT = (
    "ssh://git@localhost:22/x and git@localhost:search/x.git",
    "docker://host/stillhouse:1.2@sha256:0123 and stillhouse:1.2@sha256:0123",
    "unexpected token: found '=' at line 3, max_tokens=5, tokenizer=x, keys=2",
    "/data/token=5/x.jsonl and /home/me/x@y:z@w",
    "abfs://box@account.dfs.core.windows.net/x",
    "Authorization failed for s3://bucket/x",
)
"""Messages of git, servers and libraries: those of `SAID` contain a secret, these do not."""


@pytest.mark.parametrize("address", REFUSED)
def test_a_password_or_token_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(InputError, match=r"repo holds a password or token .*GIT_ASKPASS.*git_secret") as error:
        refuse_secret(f" {address}", "repo")
    assert "hu" not in str(error.value)
    logged = redact(f"failed to read '{address}': 403")
    assert (
        "hu" not in logged and "***" in logged and logged.startswith("failed to read '") and logged.endswith("': 403")
    )


@pytest.mark.parametrize("text", SAID)
def test_messages_are_redacted_without_losing_anything_else(text: str) -> None:
    assert redact(text) == SAID[text] == redact(redact(text))


@pytest.mark.parametrize("text", KEPT)
def test_text_without_a_secret_is_unchanged(text: str) -> None:
    assert redact(text) == text


READERS: dict[str, Callable[[str, Path], Any]] = {
    "ingest": lambda url, place: Config(repo=url, source="corpus"),
    "the pipeline, of releases": lambda url, place: Parameters(releases=url),
    "the pipeline, of a corpus": lambda url, place: Parameters(releases="r.git", repo=url),
    "refresh, of releases": lambda url, place: Request(url, place),
    "refresh, of a corpus": lambda url, place: Request("r.git", place, source={"repo": url}),
    "clone": lambda url, place: open_clone(url, "", place),
    "look": lambda url, place: look_up(url, "", "corpus"),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_refuses_it_before_anything_is_done(reader: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds a password or token"):
        READERS[reader](URL, tmp_path / "folder")
    assert not list(tmp_path.iterdir())
