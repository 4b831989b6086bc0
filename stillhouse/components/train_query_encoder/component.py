# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import HTML, Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def train_query_encoder(
    corpus: Input[Dataset],
    encoder: Input[Model],
    old_index: Input[Dataset],
    retriever: Output[Model],
    index: Output[Dataset],
    curves: Output[Dataset],
    metrics: Output[Metrics],
    html: Output[HTML],
    negatives: Input[Dataset] = None,
    teacher: Input[Dataset] = None,
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
    temperature: float = 0.02,
    passages_at_once: int = 262144,
    negatives_per_query: int = 15,
    negatives_depth: int = 200,
    alpha: float = 0.2,
    metric_for_best_model: str = "ndcg10",
    patience: Optional[int] = None,
    eval_queries: Optional[int] = None,
):
    """Trains only the query tower, against an index whose vectors stay fixed.

    Args:
        corpus: the corpus folder.
        encoder: the bi-encoder to start from.
        old_index: its index of the corpus, which stays valid.
        retriever: the bi-encoder, with its own query tower.
        index: the same index, for this bi-encoder.
        curves: training and held-out loss.
        metrics: the step's figures.
        html: its loss curves, as a page.
        negatives: hard negatives.
        teacher: a teacher's scores of the negatives, for distillation.
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
        temperature: scores are divided by it.
        passages_at_once: passages that are negatives in a step: the whole index where it holds no more, else as
            many of it, drawn anew in each step, beside the hard negatives that are given.
        negatives_per_query: with negatives alone: hard negatives drawn for a query each time it is seen.
        negatives_depth: draw them from this many of the best.
        alpha: with a teacher alone: weight of the loss over the index beside the teacher's.
        metric_for_best_model: what chooses the step that is kept, of dev queries ranked in the whole index: rr10,
            ndcg10; the start is kept where no step ranks them better.
        patience: stop after this many measurements in a row without a better one; null = never.
        eval_queries: measure on at most this many dev queries, a sample drawn from the seed; null = all.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("train-query-encoder", locals())
