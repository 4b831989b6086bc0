"""The training of a retriever, which also accepts a custom loss."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from stillhouse.core.artifacts import digest_bytes
from stillhouse.core.config import setting
from stillhouse.pipeline.api.results import Folder, StepResult
from stillhouse.pipeline.api.step_function import Setting, run_step, with_settings
from stillhouse.pipeline.steps import train_retriever as train_retriever_step

if TYPE_CHECKING:
    from stillhouse.training.losses import Loss


@dataclass(frozen=True, kw_only=True)
class OwnLossConfig(train_retriever_step.Config):
    """The settings of a training with a loss from outside, which the manifest names."""

    loss: str = setting("", "the loss's name and the digest of its source")


@with_settings(train_retriever_step.STEP)
def train_retriever(
    corpus: Folder,
    encoder: Folder,
    negatives: Folder,
    output: Folder,
    *,
    teacher: Folder | None = None,
    loss: Loss | None = None,
    **settings: Setting,
) -> StepResult:
    """Train a bi-encoder on the train queries, their positives and hard negatives, into `output/retriever`.

    `encoder` is the model to start from; `negatives` come from `bm25` or `mine`. With `teacher`, from `score_pairs`,
    the retriever is distilled from it. The defaults are SimLM's for MS MARCO, far too long for a small corpus.

    `loss` replaces the contrastive loss and, with a teacher, the distillation. It is called with the vectors of a whole
    batch (`stillhouse.training.losses.LossBatch`) in fp32, and gives one number to minimise. Parts of a
    batch, gradient caching, several processes and Matryoshka widths work as with the built-in losses; `contrastive`,
    `temperature` and `alpha` do not apply. A hinge loss, for example:

        def hinge(batch):
            scores_BM = batch.queries_BD @ batch.passages_MD.T
            right_B1 = scores_BM.gather(1, batch.positive_B[:, None])
            return ((0.2 + scores_BM - right_B1).clamp(min=0) * batch.negative_BM).sum(dim=1).mean()

        stillhouse.train_retriever(corpus, encoder, negatives, "hinge", loss=hinge)

    The manifest records the loss's name and the digest of its source. Raises `InputError` for a corpus without train
    queries, for negatives of another corpus, and for a loss that gives more than one number.
    """
    step = train_retriever_step.STEP
    if loss is not None:
        step = replace(step, config=OwnLossConfig, run=partial(train_retriever_step.run, loss=loss))
        settings["loss"] = name_and_digest(loss)
    arguments = {"corpus": corpus, "encoder": encoder, "negatives": negatives, "teacher": teacher, "output": output}
    return run_step(step, "train_retriever", arguments, settings)


def name_and_digest(loss: Loss) -> str:
    """The identity of a loss: its name and the digest of its source, if that can be found."""
    kind = loss if inspect.isroutine(loss) else type(loss)
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # typed into an interpreter, or not written in Python
        source = ""
    return f"{kind.__module__}.{kind.__qualname__} {digest_bytes(source.encode())[:12]}"
