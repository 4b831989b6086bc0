"""What a corpus must satisfy. No pandas here: the step `validate` reads it to declare its flags."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.config import setting


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Settings of `validate`: the thresholds."""

    max_rejected_fraction: float = setting(
        0.01, "the largest share of rejected rows, overall and of each kind (but links)", minimum=0, maximum=1
    )
    min_passages: int = setting(1, "at least this many passages", minimum=0)
    min_train_queries: int = setting(0, "at least this many train queries", minimum=0)
    min_dev_queries: int = setting(0, "at least this many dev queries", minimum=0)
    min_test_queries: int = setting(0, "at least this many test queries", minimum=0)
    max_passage_words: int | None = setting(
        None,
        "a passage of more words counts as truncated by the model; null = what the given encoder reads, else 110. 110 "
        "English words are about 144 tokens. White space separates words, and a character of a script without spaces "
        "(Chinese, Japanese, Thai) is one",
        minimum=1,
    )
    max_truncated_fraction: float = setting(
        1.0, "the largest share of truncated passages; 1 = only warn", minimum=0, maximum=1
    )
    max_duplicate_text_fraction: float = setting(
        0.1, "the largest share of passages that repeat another's title and text", minimum=0, maximum=1
    )
