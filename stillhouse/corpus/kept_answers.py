"""Answers of chat models, kept in the work area so that what was answered once is never paid for again.

An answer lies in a file of its own, named by the digest of the request: model, prompt as sent, temperature, seed and
the most tokens. The address is no part of it: a model is the same behind another port or host, and is renamed by
whoever serves another one. A file is there whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillhouse.artifacts import digest_json, write_whole
from stillhouse.context import work_root
from stillhouse.corpus.chat_api import Reply

FOLDER = "answers"


class KeptAnswers:
    """The answers in a folder of the work area, by the request that each answers."""

    def __init__(self) -> None:
        self._folder = work_root() / FOLDER

    def find(self, request: Mapping[str, Any]) -> Reply | None:
        """The answer to a request; None for one that is not there, and for a file that is damaged."""
        try:
            content = json.loads(self._path(request).read_text(encoding="utf-8"))
            reply = Reply(content["text"], content["cut"])
        except (OSError, ValueError, TypeError, LookupError):
            return None
        return reply if isinstance(reply.text, str) and isinstance(reply.cut, bool) else None

    def keep(self, request: Mapping[str, Any], reply: Reply) -> None:
        """Keeps an answer, which `find` then gives in this process and any other."""
        # In ASCII, since a model may answer with a lone surrogate, which has no form in UTF-8.
        write_whole(self._path(request), json.dumps({"text": reply.text, "cut": reply.cut}) + "\n")

    def _path(self, request: Mapping[str, Any]) -> Path:
        digest = digest_json(dict(request))
        return self._folder / digest[:2] / f"{digest[2:]}.json"
