"""Step `train-retriever`: trains a bi-encoder on positives and hard negatives; with a teacher, the distilled
retriever."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.pipeline.steps.spec import CORPUS, CURVES, NEGATIVES, RETRIEVER, Paths, Port, Report, Step
from stillhouse.training.settings import RetrieverConfig

if TYPE_CHECKING:
    from stillhouse.training.losses import Loss


@dataclass(frozen=True, kw_only=True)
class Config(RetrieverConfig):
    """The loss of SimLM §3.2; defaults are SimLM Table 13 (retrievers 1 and 2)."""

    towers: str = setting(
        "as_is",
        "as_is = the encoder's own; shared = one for queries and passages, the passage tower; separate = one each, "
        "with the same initial parameters if the encoder has one",
        choices=("as_is", "shared", "separate"),
    )
    similarity: str = setting(
        "cosine",
        "how vectors are compared: cosine = normalized, with a temperature of 0.01 to 0.05; dot = unchanged, "
        "with temperature 1 (CDMAE)",
        choices=("cosine", "dot"),
    )
    weak_teacher: str = setting(
        "distil",
        "if the teacher does not beat its student on the dev queries, according to `score-pairs`: distil = learn "
        "from it anyway; ignore = train without it; skip = keep the encoder unchanged",
        choices=("distil", "ignore", "skip"),
    )


def run(config: Config, inputs: Paths, outputs: Paths, context: Context, loss: Loss | None = None) -> Report:
    import torch

    from stillhouse.core.curves import IGNORED, SKIPPED, TAUGHT, describe, intervals_of, metrics_of, write_curves
    from stillhouse.corpus.store import Corpus
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.training.group_training import metric_in_curves
    from stillhouse.training.negatives import Negatives
    from stillhouse.training.retriever_training import fit_retriever
    from stillhouse.training.teacher import Teacher, is_ahead, pass_on_choice

    torch.manual_seed(config.seed)  # of the adapters of lora_rank
    if config.similarity == "dot" and config.temperature < 0.5:
        context.log(
            f"[train-retriever] similarity: dot is meant for temperature: 1, as in CDMAE, not {config.temperature:g}"
        )
    weak = "teacher" in inputs and config.weak_teacher != "distil" and not is_ahead(inputs["teacher"])
    skipped = weak and config.weak_teacher == "skip"
    if weak:
        then = "the encoder is kept unchanged" if skipped else "training continues without it"
        context.log(f"[train-retriever] the teacher does not beat its student: {then}")
    if "teacher" in inputs:
        pass_on_choice(inputs["teacher"], outputs["curves"], SKIPPED if skipped else IGNORED if weak else TAUGHT)
    if skipped:
        BiEncoder.load(inputs["encoder"]).save(outputs["retriever"])
        write_curves(outputs["curves"], [])
        return Report("kept unchanged: the teacher does not beat its student", facts={"distilled": False})
    changes = {} if config.towers == "as_is" else {"towers": config.towers}
    corpus = Corpus.open(inputs["corpus"])
    encoder = BiEncoder.load(inputs["encoder"], normalize=config.similarity == "cosine", **changes)
    distilled = "teacher" in inputs and not weak
    encoder.settings = replace(encoder.settings, titles=corpus.titles)
    negatives, teacher = Negatives.read(inputs["negatives"]), Teacher.read(inputs["teacher"]) if distilled else None
    rows = fit_retriever(encoder, corpus, negatives, teacher, config, context, loss)
    encoder.save(outputs["retriever"])
    metric = metric_in_curves(config)
    write_curves(outputs["curves"], rows, metric)
    summary = describe(rows, metric)
    if weak:
        summary += "; without its teacher, which does not beat its student"
    facts = {"distilled": distilled, "intervals": intervals_of(rows, metric)}
    return Report(summary, metrics=metrics_of(rows, metric), facts=facts)


STEP = Step(
    "train-retriever",
    "trains a bi-encoder on positives, hard negatives and optionally a teacher's scores",
    Config,
    inputs=(
        CORPUS,
        Port("encoder", "the encoder to start from", kind="model"),
        NEGATIVES,
        Port("teacher", "the re-ranker's scores, for distillation", optional=True),
    ),
    outputs=(RETRIEVER, CURVES),
    run=run,
    version=5,
    parallel=True,
)
