# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import HTML, Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def train_retriever(
    corpus: Input[Dataset],
    encoder: Input[Model],
    negatives: Input[Dataset],
    retriever: Output[Model],
    curves: Output[Dataset],
    metrics: Output[Metrics],
    html: Output[HTML],
    teacher: Input[Dataset] = None,
    old_index: Input[Dataset] = None,
    epochs: str = "3.0",
    max_steps: Optional[int] = None,
    batch_size: int = 64,
    learning_rate: float = 2e-05,
    warmup_ratio: float = 0.1,
    warmup_steps: Optional[int] = None,
    last_step: Optional[int] = None,
    weight_decay: float = 0.0,
    max_grad_norm: str = "1.0",
    eval_steps: Optional[int] = None,
    precision: str = "auto",
    padding: str = "auto",
    seed: int = 42,
    eval_queries: Optional[int] = None,
    eval_depth: int = 50,
    metric_for_best_model: str = "loss",
    patience: Optional[int] = None,
    eval_share: Optional[float] = None,
    temperature: float = 0.02,
    alpha: float = 0.2,
    contrastive: str = "simlm",
    compatibility_weight: float = 0.0,
    matryoshka_dims: Optional[list] = None,
    mini_batch_size: Optional[int] = None,
    gradient_cache: bool = False,
    negatives_per_query: int = 15,
    negatives_depth: int = 200,
    towers: str = "as_is",
    similarity: str = "cosine",
    weak_teacher: str = "distil",
):
    """Trains a bi-encoder on positives, hard negatives and optionally a teacher's scores.

    Args:
        corpus: the corpus folder.
        encoder: the encoder to start from.
        negatives: hard negatives.
        retriever: the bi-encoder.
        curves: training and held-out loss.
        metrics: the step's figures.
        html: its loss curves, as a page.
        teacher: the re-ranker's scores, for distillation.
        old_index: an older model's index of the corpus, for compatibility_weight.
        epochs: passes over the training examples, at least one step; null = max_steps alone decides.
        max_steps: stop after this many steps; null = after the epochs.
        batch_size: training examples a step.
        learning_rate: peak learning rate of AdamW.
        warmup_ratio: fraction of the steps in which the learning rate rises.
        warmup_steps: the same as a number of steps; null = as warmup_ratio says.
        last_step: stop after this step, on the schedule of them all, as CDMAE does at 80k of 20 epochs; null = go
            to the end.
        weight_decay: weight decay of AdamW, which leaves out biases and layer norms.
        max_grad_norm: gradients are scaled down to this norm; null = never.
        eval_steps: steps between two held-out losses; null = ten times a training.
        precision: auto = bf16 where the processor or GPU is faster in it, else fp32.
        padding: none = no padding is computed, attention is within each text; kept = texts are padded to the
            longest of their batch; auto = none on a CPU, kept on a GPU.
        seed: seed of every random choice.
        eval_queries: measure on at most this many dev queries, a sample drawn from the seed; null = all.
        eval_depth: candidates of a dev query that are ranked: its best negatives, this many, and its positives.
        metric_for_best_model: what chooses the step that is kept: loss = the lowest held-out loss of drawn groups;
            rr10, ndcg10 = the highest RR@10 or nDCG@10 of dev queries, whose positives and best eval_depth
            negatives are ranked: the start is kept where no step ranks them better.
        patience: stop after this many measurements in a row without a better one; null = never.
        eval_share: without eval_steps, measurements read at most this share of what the training reads, where a
            text that is trained on counts 3 times: at 10 moments beside the start or, down to 5, fewer, then on
            fewer dev queries, and below 50 of these at fewer moments again; null = 0.1 where a ranking chooses, no
            limit where the loss does.
        temperature: scores are divided by it.
        alpha: weight of the contrastive loss beside the teacher's (SimLM eq. 5).
        contrastive: where negatives come from: simlm = beside the query and beside its positive (SimLM eq. 3);
            simlm_code = as the code of SimLM, queries and positives of the batch too; plain = beside the query
            alone (CDMAE eq. 10).
        compatibility_weight: with an old index alone: weight of the loss of the queries against its vectors, so
            that new queries may be asked of it (backward-compatible training, Shen et al. 2020); 0 = off.
        matryoshka_dims: the loss is also that of vectors cut to these widths, as [64, 128]; null = of whole vectors
            alone.
        mini_batch_size: queries or passages of a batch encoded together, texts of like length; null = all of them,
            or those of like length where that is faster.
        gradient_cache: encode every text twice, so that a batch takes the memory of mini_batch_size texts.
        negatives_per_query: hard negatives drawn for a query each time it is seen.
        negatives_depth: draw them from this many of the best.
        towers: as_is = the encoder's own; shared = one for queries and passages, that of the passages; separate =
            one each, which start from the same parameters where the encoder has one.
        similarity: how vectors are compared: cosine = as of length 1, with a temperature of 0.01 to 0.05; dot =
            unchanged, with temperature 1 (CDMAE).
        weak_teacher: a teacher that `score-pairs` found to rank the dev queries no better than its student: distil
            = learn from it all the same; ignore = train without it; skip = keep the encoder unchanged.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("train-retriever", locals())
