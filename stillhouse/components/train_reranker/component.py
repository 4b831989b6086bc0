# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import HTML, Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def train_reranker(
    corpus: Input[Dataset],
    negatives: Input[Dataset],
    init: Input[Model],
    reranker: Output[Model],
    curves: Output[Dataset],
    metrics: Output[Metrics],
    html: Output[HTML],
    encoder: Input[Model] = None,
    epochs: str = "3.0",
    max_steps: Optional[int] = None,
    batch_size: int = 64,
    learning_rate: float = 3e-05,
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
    metric_for_best_model: str = "rr10",
    patience: Optional[int] = None,
    eval_share: str = "0.1",
    loss: str = "listwise",
    negatives_per_query: int = 63,
    negatives_depth: int = 200,
    mini_batch_size: Optional[int] = None,
    pooling: str = "cls",
    max_length: Optional[int] = None,
    layers: Optional[int] = None,
):
    """Trains a cross-encoder with the listwise loss of SimLM eq. 4 or binary cross-entropy.

    Args:
        corpus: the corpus folder.
        negatives: hard negatives.
        init: the model to start from.
        reranker: the cross-encoder.
        curves: training and held-out loss.
        metrics: the step's figures.
        html: its loss curves, as a page.
        encoder: the run's main model: its lengths, and the start if init was fetched as `none`.
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
        eval_queries: measure on at most this many dev queries, sampled from the seed; null = all.
        eval_depth: best negatives of a dev query that are ranked together with its positives.
        metric_for_best_model: which step to keep: loss = the one with the lowest held-out loss of drawn groups;
            rr10, ndcg10 = the one with the highest RR@10 or nDCG@10 on dev queries, ranking their positives and
            best eval_depth negatives, or the start if none is better.
        patience: stop after this many measurements in a row without improvement; null = never.
        eval_share: without eval_steps, measurements read at most this share of what training reads; a trained text
            counts 3 times. To fit, 10 measurements become 5, then dev queries become fewer, down to 100, then
            measurements again, then dev queries. null = no limit.
        loss: listwise = the positive among its query's candidates (SimLM eq. 4); bce = binary cross-entropy of each
            pair, with a positive weighted by the number of its query's negatives.
        negatives_per_query: negatives to train on per query and epoch.
        negatives_depth: draw negatives from this many of the highest-ranked ones.
        mini_batch_size: back-propagate the queries of this many pairs at a time, to save memory; null = the whole
            batch.
        pooling: cls = a new scoring layer on [CLS], as in the papers; cosine = 20 times the cosine of the mean
            states of the query's half and the passage's half, without a new layer: start it from a fine-tuned
            retriever.
        max_length: tokens of a query and its passage together; null = the query_length and passage_length of the
            model that `fetch-model` fetched, at most what the re-ranker reads (192 in SimLM Table 13).
        layers: keep only this many of the first layers of the starting model; null = all.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("train-reranker", locals())
