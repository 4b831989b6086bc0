"""The settings of pair tasks (Chang et al. §3, §4.1). No torch: step modules import this to declare their flags."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from stillhouse.core.config import setting
from stillhouse.training.settings import gradient_cache_setting, mini_batch_setting, require_parts

TASKS = {
    "ict": "a sentence finds the rest of its passage (inverse cloze task)",
    "bfs": "a sentence of an article's first section finds another passage of the article (body first selection)",
    "wlp": "a sentence of an article's first section finds a passage of an article that links to it "
    "(wiki link prediction)",
}
"""Every pair task and what it pairs. The position here is a task's number, as in `PairBatch.task_B`."""
TASK_NAMES = tuple(TASKS)
PAIR_OBJECTIVES = tuple("+".join(names) for size in (1, 2, 3) for names in combinations(TASKS, size))
"""The tasks and their uniform mixtures."""


@dataclass(frozen=True, kw_only=True)
class PairConfig:
    """Settings of the pair tasks; the defaults follow Chang et al. (2020) §4.1, except the lengths."""

    query_length: int | None = setting(
        None,
        "pair tasks: tokens per query, including [CLS] and [SEP]; null = the query_length of the model to start from "
        "(64 in Chang et al. §4.1)",
        minimum=3,
    )
    passage_length: int | None = setting(
        None,
        "pair tasks: tokens per passage, including [CLS] and [SEP]; null = the passage_length of the model to start "
        "from (288 in Chang et al. §4.1)",
        minimum=3,
    )
    ict_keep: float = setting(
        0.0,
        "pair tasks: share of ict pairs that keep the sentence in the passage (Chang et al. 2020: none; ORQA: 0.1)",
        minimum=0,
        maximum=1,
    )
    pair_title: str = setting(
        "sep",
        "pair tasks: sep = title [SEP] passage (Chang et al. §4.1); space = title and passage as retrieval reads them; "
        "none = only the passage",
        choices=("sep", "space", "none"),
    )
    pair_encoder: str = setting(
        "transformer",
        "pair tasks: transformer = the initial model; bow_mlp = bag of words and two layers (Chang et al. §4.2)",
        choices=("transformer", "bow_mlp"),
    )
    towers: str = setting(
        "shared",
        "pair tasks: shared = one encoder for queries and passages; separate = one each",
        choices=("shared", "separate"),
    )
    projection: int | None = setting(
        512, "pair tasks: width of the linear layer on the pooled vector; null = no layer", minimum=1
    )
    pair_normalize: bool = setting(
        False, "pair tasks: cosine instead of inner product (Chang et al. 2020 eq. 1, note 1); adjust temperature too"
    )
    temperature: float = setting(1.0, "pair tasks: temperature by which the softmax scores are divided", minimum=0.0001)
    correction: bool = setting(
        True, "pair tasks: subtract the log of a passage's sampling probability from its score (Chang et al. 2020 §2)"
    )
    mini_batch_size: int | None = mini_batch_setting("pair tasks: ")
    gradient_cache: bool = gradient_cache_setting("pair tasks: ")

    def __post_init__(self) -> None:
        require_parts(self.gradient_cache, self.mini_batch_size)

    @property
    def pair_query_tokens(self) -> int:
        """`query_length`, which a run sets from its model if it is null."""
        assert self.query_length is not None, "pretrain sets it"
        return self.query_length

    @property
    def pair_passage_tokens(self) -> int:
        """`passage_length`, which a run sets from its model if it is null."""
        assert self.passage_length is not None, "pretrain sets it"
        return self.passage_length
