"""Step `train-reranker`: trains a cross-encoder, the teacher of the distilled retriever (SimLM §3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.pipeline.steps.spec import CORPUS, CURVES, NEGATIVES, RERANKER, Paths, Port, Report, Step
from stillhouse.training.settings import RerankerConfig


@dataclass(frozen=True, kw_only=True)
class Config(RerankerConfig):
    """The loss of SimLM §3.2 and the form of the re-ranker.

    Defaults are SimLM Table 13 (re-ranker), except `max_length` and `metric_for_best_model`.
    """

    pooling: str = setting(
        "cls",
        "cls = a new scoring layer on [CLS], as in the papers; cosine = 20 times the cosine of the mean states of the "
        "query's half and the passage's half, without a new layer: start it from a fine-tuned retriever",
        choices=("cls", "cosine"),
    )
    max_length: int | None = setting(
        None,
        "tokens of a query and its passage together; null = the query_length and passage_length of the model that "
        "`fetch-model` fetched, at most what the re-ranker reads (192 in SimLM Table 13)",
        minimum=8,
    )
    layers: int | None = setting(
        None, "keep only this many of the first layers of the base model; null = all", minimum=1
    )


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import torch

    from stillhouse.core.curves import describe, metrics_of, write_curves
    from stillhouse.corpus.store import Corpus
    from stillhouse.models.cross_encoder import CrossEncoder
    from stillhouse.models.encoder_settings import read_settings
    from stillhouse.models.source import model_or
    from stillhouse.training.group_training import metric_in_curves
    from stillhouse.training.negatives import Negatives
    from stillhouse.training.reranker_training import fit_reranker

    torch.manual_seed(config.seed)
    init = model_or(inputs["init"], inputs.get("encoder"), "re-ranker")
    length = config.max_length
    if length is None:
        main = read_settings(inputs.get("encoder", init))
        length = main.query_length + main.passage_length
    model = CrossEncoder.start(init, length, config.layers, shorten=config.max_length is None, pooling=config.pooling)
    corpus, negatives = Corpus.open(inputs["corpus"]), Negatives.read(inputs["negatives"])
    rows = fit_reranker(model, corpus, negatives, config, context)
    model.save(outputs["reranker"])
    write_curves(outputs["curves"], rows, metric_in_curves(config))
    return Report(describe(rows, metric_in_curves(config)), metrics=metrics_of(rows, metric_in_curves(config)))


STEP = Step(
    "train-reranker",
    "trains a cross-encoder with the listwise loss of SimLM eq. 4",
    Config,
    inputs=(
        CORPUS,
        NEGATIVES,
        Port("init", "the model to start from", kind="model"),
        Port(
            "encoder",
            "the run's main model: gives the lengths, and is the base model if init was fetched as `none`",
            kind="model",
            optional=True,
        ),
    ),
    outputs=(RERANKER, CURVES),
    run=run,
    version=2,
)
