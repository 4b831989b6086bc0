"""The part of a corpus, or of its pairs, that a step takes, for steps that several machines share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stillhouse.core.config import setting
from stillhouse.core.errors import InputError

DIVIDED: Mapping[str, str] = {"index": "encode", "importance": "count", "score-pairs": "score-shard"}
"""The steps whose work several machines may share, and the step that does one part of it."""


@dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """One of several parts. Raises `InputError` for a part beyond the last."""

    shard: int = setting(1, "the number of this shard, from 1", minimum=1)
    shards: int = setting(1, "how many parts the corpus is divided into", minimum=1)

    def __post_init__(self) -> None:
        if self.shard > self.shards:
            raise InputError(f"there is no shard {self.shard} of {self.shards}; they are numbered from 1")
