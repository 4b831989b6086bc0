"""Step `train-query-encoder`: trains only the query tower, perhaps a smaller one, so that an index stays valid."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.pipeline.steps.spec import CORPUS, CURVES, Paths, Port, Report, Step
from stillhouse.training.settings import QueryTrainingConfig

if TYPE_CHECKING:
    from stillhouse.corpus.store import Corpus
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.training.imitation import Imitation


@dataclass(frozen=True, kw_only=True)
class Config(QueryTrainingConfig):
    """The loss over the index, the rule for the step to keep, and the initial weights of a smaller tower."""

    epochs: float | None = setting(
        3.0,
        "passes over the train queries or, for a smaller tower, over all texts whose vectors it learns; null = only "
        "max_steps counts",
        minimum=0,
    )
    layers: int | None = setting(
        None, "keep only this many layers for queries, to make them cheaper; null = all", minimum=1
    )


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.core.artifacts import copy_content
    from stillhouse.core.curves import describe, intervals_of, metrics_of, write_curves
    from stillhouse.corpus.store import Corpus
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.pipeline.steps.execute import refuse_other_model
    from stillhouse.search.vector_index import VectorIndex
    from stillhouse.training.negatives import Negatives
    from stillhouse.training.query_training import train_query_tower
    from stillhouse.training.teacher import Teacher

    refuse_other_model(STEP, inputs, "old_index", "encoder")
    corpus = Corpus.open(inputs["corpus"])
    encoder, imitation = BiEncoder.load(inputs["encoder"], towers="separate"), None
    if config.layers or "small" in inputs:
        encoder, imitation = _smaller(config, inputs, corpus, encoder, context)
    index = VectorIndex(inputs["old_index"])
    negatives = Negatives.read(inputs["negatives"]) if "negatives" in inputs else None
    teacher = Teacher.read(inputs["teacher"]) if "teacher" in inputs else None
    found = train_query_tower(encoder, index, corpus, negatives, teacher, config, context, imitation)
    if not found.kept_step and imitation is None:  # unchanged, with one tower for both if it had one
        encoder = BiEncoder.load(inputs["encoder"])
    encoder.save(outputs["retriever"])
    copy_content(inputs["old_index"], outputs["index"])
    write_curves(outputs["curves"], found.rows, found.metric_in_curves)
    gain = found.gain
    said = (
        f"dev {found.measure} {found.start[found.measure]:.3f} to {found.end[found.measure]:.3f}, "
        f"{gain.difference:+.3f} ({gain.low:+.3f} to {gain.high:+.3f}), step {found.kept_step} kept"
    )
    return Report(
        f"{said}; {describe(found.rows, found.metric_in_curves)}",
        metrics=metrics_of(found.rows, found.metric_in_curves) | {"gain": gain.difference},
        facts={
            "distilled": teacher is not None,
            "intervals": intervals_of(found.rows, found.metric_in_curves),
            "start": dict(found.start),
            "end": dict(found.end),
            "gain": asdict(gain),
            "measure": found.measure,
            "kept_step": found.kept_step,
            "helps": gain.low > 0,  # the 95 % interval lies above 0
        },
    )


def _smaller(
    config: Config, inputs: Paths, corpus: Corpus, large: BiEncoder, context: Context
) -> tuple[BiEncoder, Imitation]:
    """The bi-encoder with a smaller query tower, and what this imitates."""
    from stillhouse.models.new_towers import keep_layers, with_small_model
    from stillhouse.training.imitation import Imitation, texts_to_imitate, vectors_to_imitate

    if config.layers and "small" in inputs:
        raise InputError("layers shortens --encoder, and --small replaces it; leave one of them out")
    texts = texts_to_imitate(corpus, config.seed)
    vectors_ND = vectors_to_imitate(large, texts, context)
    if "small" in inputs:
        encoder = with_small_model(large, inputs["encoder"], inputs["small"], texts, vectors_ND, context)
    else:
        encoder = large
        keep_layers(encoder, config.layers or 0)
    device = context.torch_device()
    return encoder, Imitation(encoder, texts, vectors_ND, config.batch_size, config.seed, device)


STEP = Step(
    "train-query-encoder",
    "trains only the query tower, against an index whose vectors stay fixed",
    Config,
    inputs=(
        CORPUS,
        Port("encoder", "the bi-encoder to start from", kind="model"),
        Port("old_index", "its index of the corpus, which stays valid", agrees_on=("corpus",)),
        Port("small", "a smaller model for the queries", kind="model", optional=True),
        Port("negatives", "hard negatives", optional=True, agrees_on=("corpus",)),
        Port(
            "teacher",
            "a teacher's scores of the negatives, for distillation",
            optional=True,
            agrees_on=("corpus", "negatives"),
        ),
    ),
    outputs=(
        Port("retriever", "the bi-encoder, with its own query tower", kind="model"),
        Port("index", "the same index, for this bi-encoder", beside=("retriever",)),
        CURVES,
    ),
    run=run,
    version=6,
)
