"""Step `train-reranker`: trains a cross-encoder, the teacher of the distilled retriever (SimLM §3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.errors import InputError
from stillhouse.retrieval.settings import GroupTrainingConfig, best_model_setting
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config(GroupTrainingConfig):
    """How a query's candidates are drawn and compared.

    Defaults are SimLM Table 13 (re-ranker), except `max_length` and `metric_for_best_model`.
    """

    metric_for_best_model: str = best_model_setting("rr10")
    loss: str = setting(
        "listwise",
        "listwise = the positive among its query's candidates (SimLM eq. 4); bce = binary cross-entropy of each pair, "
        "with a positive weighted by the number of its query's negatives",
        choices=("listwise", "bce"),
    )
    pooling: str = setting(
        "cls",
        "cls = a new scoring layer on [CLS], as in the papers; cosine = 20 times the cosine of the mean states of the "
        "query's half and the passage's half, without a new layer: start it from a fine-tuned retriever",
        choices=("cls", "cosine"),
    )
    learning_rate: float = setting(3e-5, "peak learning rate of AdamW", minimum=0)
    negatives_per_query: int = setting(63, "negatives to train on per query and epoch", minimum=1)
    negatives_depth: int = setting(200, "draw negatives from this many of the highest-ranked ones", minimum=1)
    forward_per_query: int | None = setting(
        None,
        "draw this many negatives instead, and train on the negatives_per_query that the re-ranker currently scores "
        "highest (63 and 15 in SimLM's code); null = draw no more",
        minimum=1,
        former=0,
    )
    r_drop: float = setting(
        0.0, "weight of R-Drop: every pair is read twice and the passes are made to agree; 0 = off", minimum=0
    )
    mini_batch_size: int | None = setting(
        None,
        "back-propagate the queries of this many pairs at a time, to save memory; null = the whole batch",
        minimum=1,
        former=0,
    )
    max_length: int | None = setting(
        None,
        "tokens of a query and its passage together; null = the query_length and passage_length of the model that "
        "`fetch-model` fetched, at most what the re-ranker reads (192 in SimLM Table 13)",
        minimum=8,
    )
    layers: int | None = setting(
        None, "keep only this many of the first layers of the starting model; null = all", minimum=1, former=0
    )

    def __post_init__(self) -> None:
        if self.loss == "bce" and self.r_drop:
            raise InputError("r_drop compares a query's candidates with each other; set it to 0, or loss: listwise")
        if self.forward_per_query is not None and self.forward_per_query < self.negatives_per_query:
            raise InputError(
                f"forward_per_query {self.forward_per_query} is below negatives_per_query {self.negatives_per_query}: "
                "the negatives trained on are chosen from those it draws; raise it, or leave it out"
            )


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import torch

    from stillhouse.corpus.store import Corpus
    from stillhouse.curves import describe, metrics_of, write_curves
    from stillhouse.retrieval.fine_tuning.group_training import metric_in_curves
    from stillhouse.retrieval.fine_tuning.reranker_training import Drawing, fit_reranker
    from stillhouse.retrieval.mining.negatives import Negatives
    from stillhouse.retrieval.models.cross_encoder import CrossEncoder
    from stillhouse.retrieval.models.encoder_settings import read_settings
    from stillhouse.retrieval.models.source import model_or

    torch.manual_seed(config.seed)
    init = model_or(inputs["init"], inputs.get("encoder"), "re-ranker")
    length = config.max_length
    if length is None:
        main = read_settings(inputs.get("encoder", init))
        length = main.query_length + main.passage_length
    model = CrossEncoder.start(init, length, config.layers, shorten=config.max_length is None, pooling=config.pooling)
    corpus, negatives = Corpus.open(inputs["corpus"]), Negatives.read(inputs["negatives"])
    drawing = Drawing(
        negatives=config.negatives_per_query, forward=config.forward_per_query, depth=config.negatives_depth
    )
    rows = fit_reranker(
        model, corpus, negatives, config, drawing, config.r_drop, config.mini_batch_size, context, config.loss
    )
    model.save(outputs["reranker"])
    write_curves(outputs["curves"], rows)
    return Report(describe(rows, metric_in_curves(config)), metrics=metrics_of(rows, metric_in_curves(config)))


STEP = Step(
    "train-reranker",
    "trains a cross-encoder with the listwise loss of SimLM eq. 4 or binary cross-entropy",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("negatives", "hard negatives"),
        Port("init", "the model to start from", kind="model"),
        Port(
            "encoder",
            "the run's main model: its lengths, and the start if init was fetched as `none`",
            kind="model",
            optional=True,
        ),
    ),
    outputs=(
        Port("reranker", "the cross-encoder", kind="model"),
        Port("curves", "training and held-out loss"),
    ),
    run=run,
)
