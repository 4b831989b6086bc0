"""Step `train-reranker`: a cross-encoder, the teacher of the distilled retriever (001 §3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step
from stillhouse.training.settings import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """The listwise loss of 001 eq. 4; defaults are 001 Table 13 (re-ranker)."""

    learning_rate: float = setting(3e-5, "peak learning rate of AdamW", minimum=0)
    negatives_per_query: int = setting(63, "negatives drawn for a query each time it is seen", minimum=1)
    negatives_depth: int = setting(200, "draw them from the best so many", minimum=1)
    max_length: int = setting(192, "tokens of a query and its passage together", minimum=8)
    layers: int = setting(0, "keep the first so many layers of the model it starts from; 0 = all of them", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import torch

    from stillhouse.corpus.store import Corpus
    from stillhouse.retrieval.cross_encoder import CrossEncoder
    from stillhouse.retrieval.negatives import Negatives
    from stillhouse.retrieval.reranker_training import train_reranker
    from stillhouse.training.curves import best_row, describe, write_curves

    torch.manual_seed(config.seed)
    model = CrossEncoder.start(inputs["init"], config.max_length, config.layers)
    corpus, negatives = Corpus.open(inputs["corpus"]), Negatives.read(inputs["negatives"])
    rows = train_reranker(model, corpus, negatives, config, config.negatives_per_query, config.negatives_depth, context)
    model.save(outputs["reranker"])
    write_curves(outputs["curves"], rows)
    best = best_row(rows)
    return Report(
        describe(rows),
        metrics={"heldout_loss_start": rows[0].heldout_loss, "heldout_loss": best.heldout_loss},
    )


STEP = Step(
    "train-reranker",
    "trains a cross-encoder with the listwise loss (001 eq. 4)",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("negatives", "hard negatives"),
        Port("init", "the model to start from", kind="model"),
    ),
    outputs=(
        Port("reranker", "the cross-encoder", kind="model"),
        Port("curves", "training and held-out loss"),
    ),
    run=run,
)
