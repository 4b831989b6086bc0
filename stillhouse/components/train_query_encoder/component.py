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
        epochs: passes over the training examples, at least one step; null = only max_steps counts.
        max_steps: stop after this many steps; null = after the epochs.
        batch_size: examples per step.
        learning_rate: peak learning rate of AdamW.
        warmup_ratio: fraction of steps with a rising learning rate.
        warmup_steps: the same as a number of steps; null = use warmup_ratio.
        last_step: stop after this step of the full schedule, as CDMAE does at 80k of 20 epochs; null = run to the
            end.
        weight_decay: weight decay of AdamW, except for biases and layer norms.
        max_grad_norm: scale gradients down to this norm; null = never.
        eval_steps: steps between held-out losses; null = ten per training.
        precision: auto = bf16 if it is faster on the processor or GPU, else fp32.
        padding: none = compute no padding, with attention within each text; kept = pad texts to the longest in the
            batch; auto = none on a CPU, kept on a GPU.
        seed: seed of every random choice.
        temperature: divide scores by this.
        passages_at_once: passages used as negatives in a step: the whole index if it is no larger, else a new
            sample of this size in each step; hard negatives are added.
        negatives_per_query: only with negatives: hard negatives drawn per query and epoch.
        negatives_depth: draw negatives from this many of the highest-ranked ones.
        alpha: only with a teacher: weight of the loss over the index.
        metric_for_best_model: keep the step that ranks dev queries best in the whole index, by rr10 or ndcg10; keep
            the start if no step is better.
        patience: stop after this many measurements in a row without improvement; null = never.
        eval_queries: measure on at most this many dev queries, sampled from the seed; null = all.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("train-query-encoder", locals())
