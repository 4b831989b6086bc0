"""Models: fetched, pre-trained, fine-tuned, distilled and averaged."""

from __future__ import annotations

from stillhouse.api.results import Folder, QueryEncoderResult, StepResult, TrainingResult
from stillhouse.api.step_function import Setting, run_step, settings_of
from stillhouse.steps import average as average_step
from stillhouse.steps import fetch_model as fetch_model_step
from stillhouse.steps import importance as importance_step
from stillhouse.steps import pretrain as pretrain_step
from stillhouse.steps import score_pairs as score_step
from stillhouse.steps import tokenize as tokenize_step
from stillhouse.steps import train_query_encoder as train_query_encoder_step
from stillhouse.steps import train_reranker as train_reranker_step
from stillhouse.steps import train_retriever as train_retriever_step


@settings_of(fetch_model_step.STEP)
def fetch_model(model: Folder, output: Folder, **settings: Setting) -> StepResult:
    """Store the model that training starts from as `output/encoder`.

    `model` is a folder, a name on the Hugging Face hub, or `package:NAME` for one inside an installed package. The
    lengths (in tokens, including special tokens) and the pooling set here apply to everything trained from it.

    Raises `InputError` for a model that is missing or cannot be used as an encoder.
    """
    return run_step(StepResult, fetch_model_step.STEP, "fetch_model", {}, output, {"model": model, **settings})


@settings_of(tokenize_step.STEP)
def tokenize(corpus: Folder, tokenizer: Folder, output: Folder, **settings: Setting) -> StepResult:
    """Tokenize every passage into `output/tokens`, for `pretrain`; `tokenizer` is the model's folder."""
    inputs = {"corpus": corpus, "tokenizer": tokenizer}
    return run_step(StepResult, tokenize_step.STEP, "tokenize", inputs, output, settings)


@settings_of(importance_step.STEP)
def importance(tokens: Folder, output: Folder, *, tokenizer: Folder | None = None, **settings: Setting) -> StepResult:
    """Compute the importance of each token into `output/importance`, for CDMAE's importance-aware masking."""
    inputs = {"tokens": tokens, "tokenizer": tokenizer}
    return run_step(StepResult, importance_step.STEP, "importance", inputs, output, settings)


@settings_of(pretrain_step.STEP)
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

    Raises `InputError` if the objective needs an input that was not given.
    """
    inputs = {"tokens": tokens, "init": init, "generator": generator, "importance": importance}
    return run_step(TrainingResult, pretrain_step.STEP, "pretrain", inputs, output, settings)


@settings_of(train_retriever_step.STEP)
def train_retriever(
    corpus: Folder,
    encoder: Folder,
    negatives: Folder,
    output: Folder,
    *,
    teacher: Folder | None = None,
    old_index: Folder | None = None,
    **settings: Setting,
) -> TrainingResult:
    """Train a bi-encoder on the train queries, their positives and hard negatives, into `output/retriever`.

    `encoder` is the model to start from; `negatives` come from `bm25` or `mine`. With `teacher`, from `score_pairs`,
    the retriever is distilled from it. With `old_index` and `compatibility_weight`, its queries can search that index
    too. The defaults are SimLM's for MS MARCO, far too long for a small corpus.

    Raises `InputError` for a corpus without train queries and for negatives of another corpus.
    """
    inputs = {
        "corpus": corpus,
        "encoder": encoder,
        "negatives": negatives,
        "teacher": teacher,
        "old_index": old_index,
    }
    return run_step(TrainingResult, train_retriever_step.STEP, "train_retriever", inputs, output, settings)


@settings_of(train_query_encoder_step.STEP)
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
    inputs = {
        "corpus": corpus,
        "encoder": encoder,
        "old_index": old_index,
        "negatives": negatives,
        "teacher": teacher,
    }
    return run_step(QueryEncoderResult, train_query_encoder_step.STEP, "train_query_encoder", inputs, output, settings)


@settings_of(train_reranker_step.STEP)
def train_reranker(
    corpus: Folder, negatives: Folder, init: Folder, output: Folder, **settings: Setting
) -> TrainingResult:
    """Train a cross-encoder, which reads query and passage together, into `output/reranker`.

    `init` is the model to start from, from `fetch_model` or `pretrain`.
    """
    inputs = {"corpus": corpus, "negatives": negatives, "init": init}
    return run_step(TrainingResult, train_reranker_step.STEP, "train_reranker", inputs, output, settings)


@settings_of(score_step.STEP)
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
    """
    inputs = {
        "corpus": corpus,
        "negatives": negatives,
        "reranker": reranker,
        "retriever": retriever,
        "index": index,
        "bm25": bm25,
    }
    return run_step(StepResult, score_step.STEP, "score_pairs", inputs, output, settings)


@settings_of(average_step.STEP)
def average(
    corpus: Folder, start: Folder, trained: Folder, negatives: Folder, output: Folder, **settings: Setting
) -> StepResult:
    """Average the weights of a trained retriever and its start, with the share that ranks dev queries best.

    The average is `output/retriever`.
    """
    inputs = {"corpus": corpus, "start": start, "trained": trained, "negatives": negatives}
    return run_step(StepResult, average_step.STEP, "average", inputs, output, settings)
