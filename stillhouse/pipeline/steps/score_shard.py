"""Step `score-shard`: scores one shard of the pairs with the cross-encoder; `score-pairs` reads all shards."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.context import Context
from stillhouse.pipeline.steps.spec import CORPUS, RERANKER, Paths, Port, Report, ShardConfig, Step
from stillhouse.training.settings import ScoredPairsConfig


@dataclass(frozen=True, kw_only=True)
class Config(ShardConfig, ScoredPairsConfig):
    """Which part of the pairs to score, and which pairs there are."""


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.core.arrays import save_array
    from stillhouse.corpus.store import Corpus
    from stillhouse.models.pair_scores import stretch
    from stillhouse.training.negatives import Negatives
    from stillhouse.training.scored_pairs import FILE, ScoredPairs, cross_encoder_scores

    corpus = Corpus.open(inputs["corpus"])
    pairs = ScoredPairs.of(config, corpus, Negatives.read(inputs["negatives"]))
    own = stretch(len(pairs), config.shard, config.shards)
    scores = cross_encoder_scores(inputs["reranker"], pairs, own, corpus, context, config)
    if scores is None:
        return Report("scored its share")
    save_array(outputs["scores"] / FILE, scores)
    return Report(
        f"shard {config.shard} of {config.shards}: {len(scores)} of {len(pairs)} pairs scored",
        metrics={"pairs": float(len(scores))},
        facts={"shard": config.shard, "shards": config.shards, "pairs": len(scores)},
    )


STEP = Step(
    "score-shard",
    "scores one shard of the pairs with the cross-encoder, to split the work among machines",
    Config,
    inputs=(CORPUS, Port("negatives", "hard negatives", agrees_on=("corpus",)), RERANKER),
    outputs=(Port("scores", "the scores of the shard's pairs"),),
    run=run,
    parallel=True,
)
