"""Step `train-projection`: trains a linear layer on top of a retriever, with all passages as negatives."""

from __future__ import annotations

from stillhouse.core.context import Context
from stillhouse.pipeline.steps.spec import CORPUS, CURVES, Paths, Port, Report, Step
from stillhouse.training.settings import ProjectionTrainingConfig as Config


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.core.curves import describe, intervals_of, metrics_of, write_curves
    from stillhouse.corpus.store import Corpus
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.models.new_towers import multiply_vectors
    from stillhouse.pipeline.steps.execute import refuse_other_model
    from stillhouse.search.searcher import open_index
    from stillhouse.training.projection_training import train_projection

    refuse_other_model(STEP, inputs, "old_index", "encoder")
    encoder, corpus = BiEncoder.load(inputs["encoder"]), Corpus.open(inputs["corpus"])
    matrix_DD, rows = train_projection(encoder, open_index(inputs["old_index"], corpus), corpus, config, context)
    multiply_vectors(encoder, matrix_DD)
    encoder.save(outputs["retriever"])
    write_curves(outputs["curves"], rows)
    return Report(describe(rows), metrics=metrics_of(rows), facts={"intervals": intervals_of(rows)})


STEP = Step(
    "train-projection",
    "trains a linear layer on a retriever's vectors in seconds, with all passages as negatives",
    Config,
    inputs=(
        CORPUS,
        Port("encoder", "the bi-encoder to start from", kind="model"),
        Port("old_index", "its index of the corpus", agrees_on=("corpus",)),
    ),
    outputs=(Port("retriever", "the bi-encoder with the layer", kind="model"), CURVES),
    run=run,
    version=5,
)
