# Rendered by `python -m components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def train_reranker(
    corpus: Input[Dataset],
    negatives: Input[Dataset],
    init: Input[Model],
    reranker: Output[Model],
    curves: Output[Dataset],
    metrics: Output[Metrics],
    epochs: float = 3.0,
    max_steps: int = 0,
    batch_size: int = 64,
    learning_rate: float = 3e-05,
    warmup: float = 0.1,
    weight_decay: float = 0.0,
    clip: float = 1.0,
    heldout_every: int = 0,
    precision: str = "auto",
    seed: int = 42,
    negatives_per_query: int = 63,
    negatives_depth: int = 200,
    max_length: int = 192,
    layers: int = 0,
):
    """Trains a cross-encoder with the listwise loss (001 eq. 4).

    Args:
        corpus: the corpus folder.
        negatives: hard negatives.
        init: the model to start from.
        reranker: the cross-encoder.
        curves: training and held-out loss.
        metrics: the step's figures.
        epochs: passes over the training examples, at least one step.
        max_steps: stop after this many steps; 0 = by epochs.
        batch_size: training examples a step.
        learning_rate: peak learning rate of AdamW.
        warmup: fraction of the steps in which the learning rate rises.
        weight_decay: weight decay of AdamW.
        clip: gradients are scaled down to this norm; 0 = never.
        heldout_every: steps between two held-out losses; 0 = ten times a training.
        precision: auto = bf16 where the processor or GPU computes in it, else fp32.
        seed: seed of every random choice.
        negatives_per_query: negatives drawn for a query each time it is seen.
        negatives_depth: draw them from the best so many.
        max_length: tokens of a query and its passage together.
        layers: keep the first so many layers of the model it starts from; 0 = all of them.
    """
    from stillhouse.surfaces.component import run_component

    run_component("train-reranker", locals())
