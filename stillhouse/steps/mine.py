"""Step `mine`: a retriever's best wrong passages become the next training's hard negatives (001 §3.2, retriever 2)."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config(InferenceConfig):
    """How deep to mine."""

    negatives_depth: int = setting(200, "hard negatives of a query (001 Table 13; K2 and K3 of 003 §3.4)", minimum=1)
    negatives_among: str = setting(
        "corpus",
        "which passages may be negatives: corpus = all, as in 001; answers = those that answer another query of the "
        "same split, for a corpus whose splits divide its passages: others would be learned by heart as wrong",
        choices=("corpus", "answers"),
    )


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import numpy as np
    from numpy.typing import NDArray

    from stillhouse.corpus.store import Corpus
    from stillhouse.retrieval.dense import check_index, retrieve
    from stillhouse.retrieval.encoder import BiEncoder
    from stillhouse.retrieval.negatives import describe, mine
    from stillhouse.retrieval.vector_index import VectorIndex

    corpus = Corpus.open(inputs["corpus"])
    encoder, index = BiEncoder.load(inputs["retriever"]), VectorIndex(inputs["index"])
    check_index(index, corpus)

    def search(texts: list[str], depth: int) -> NDArray[np.int32]:
        return retrieve(encoder, index, texts, depth, context, config)[0]

    negatives = mine(corpus, search, config.negatives_depth, config.negatives_among)
    negatives.write(outputs["negatives"])
    return Report(describe(negatives))


STEP = Step(
    "mine",
    "takes a retriever's best wrong passages as hard negatives",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("retriever", "the bi-encoder", kind="model"),
        Port("index", "its index of the corpus"),
    ),
    outputs=(Port("negatives", "hard negatives"),),
    run=run,
)
