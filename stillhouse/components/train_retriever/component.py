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
    eval_share: str = "0.1",
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
        temperature: divide scores by this.
        alpha: weight of the contrastive loss, with a teacher (SimLM eq. 5).
        contrastive: what negatives are compared with: simlm = the query and its positive (SimLM eq. 3); simlm_code
            = as in the code of SimLM, also the batch's queries and positives; plain = the query alone (CDMAE eq.
            10).
        compatibility_weight: only with an old index: weight of the queries' loss against its vectors, so that new
            queries can search it (backward-compatible training, Shen et al. 2020); 0 = off.
        matryoshka_dims: also train vectors cut to these widths, as [64, 128]; null = whole vectors only.
        mini_batch_size: queries or passages encoded together, grouped by length; null = the whole batch, or groups
            of similar length if faster.
        gradient_cache: encode every text twice, so a batch needs the memory of mini_batch_size texts.
        negatives_per_query: hard negatives drawn per query and epoch.
        negatives_depth: draw negatives from this many of the highest-ranked ones.
        towers: as_is = the encoder's own; shared = one for queries and passages, the passage tower; separate = one
            each, with the same initial parameters if the encoder has one.
        similarity: how vectors are compared: cosine = normalized, with a temperature of 0.01 to 0.05; dot =
            unchanged, with temperature 1 (CDMAE).
        weak_teacher: for a teacher that `score-pairs` found to rank dev queries no better than its student: distil
            = learn from it anyway; ignore = train without it; skip = keep the encoder unchanged.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("train-retriever", locals())
