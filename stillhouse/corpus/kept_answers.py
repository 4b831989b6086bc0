"""Keeps the answers of chat models in the work area, so that no answer is paid for twice.

Each answer has its own file, named by the digest of the request: model, prompt as sent, temperature, seed and token
limit. The address is not part of it, since a model is the same behind another host or port, and a different model
should have a different name. A file is written whole or not at all.
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
    """The answers in a folder of the work area, by their requests."""

    def __init__(self) -> None:
        self._folder = work_root() / FOLDER

    def find(self, request: Mapping[str, Any]) -> Reply | None:
        """The answer to a request; None if there is none or its file is damaged."""
        try:
            content = json.loads(self._path(request).read_text(encoding="utf-8"))
            reply = Reply(content["text"], content["cut"])
        except (OSError, ValueError, TypeError, LookupError):
            return None
        return reply if isinstance(reply.text, str) and isinstance(reply.cut, bool) else None

    def keep(self, request: Mapping[str, Any], reply: Reply) -> None:
        """Keeps an answer, so that `find` returns it in any process."""
        # In ASCII, since a model's answer may hold a lone surrogate, which UTF-8 cannot encode.
        write_whole(self._path(request), json.dumps({"text": reply.text, "cut": reply.cut}) + "\n")

    def _path(self, request: Mapping[str, Any]) -> Path:
        digest = digest_json(dict(request))
        return self._folder / digest[:2] / f"{digest[2:]}.json"
