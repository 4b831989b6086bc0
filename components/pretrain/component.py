# Rendered by `python -m components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def pretrain(
    tokens: Input[Dataset],
    init: Input[Model],
    encoder: Output[Model],
    curves: Output[Dataset],
    metrics: Output[Metrics],
    generator: Input[Model] = None,
    importance: Input[Dataset] = None,
    epochs: float = 3.0,
    max_steps: int = 0,
    batch_size: int = 64,
    learning_rate: float = 0.0003,
    warmup: float = 0.1,
    weight_decay: float = 0.0,
    clip: float = 1.0,
    heldout_every: int = 0,
    precision: str = "auto",
    seed: int = 42,
    objective: str = "simlm",
    trainable: str = "all",
    encoder_mask: float = 0.3,
    decoder_mask: float = 0.5,
    mask_unit: str = "token",
    importance_noise: float = 1.0,
    max_length: int = 144,
    heldout_fraction: float = 0.05,
    heldout_limit: int = 4096,
):
    """Trains an encoder on unlabelled passages with one of the objectives.

    Args:
        tokens: the token arrays.
        init: the model to start from.
        encoder: the pre-trained encoder with its language-model head.
        curves: training and held-out loss.
        metrics: the step's figures.
        generator: the masked language model that replaces tokens.
        importance: AMI values for importance-aware masking.
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
        objective: what is predicted from what:
            mlm: masked tokens from their context; trains a language-model head or a generator (Devlin et al. 2019;
                003 eq. 3)
            simlm: replaced tokens, by the encoder and through the bottleneck by a 2-layer decoder, at all positions
                (001 §3.1, eq. 1-2)
            bow: masked tokens, and the passage's set of tokens from its vector; no decoder (002 §3.3, eq. 12-13)
            cdmae: masked tokens, by the encoder and through a projection by a decoder whose important tokens are
                masked (003 §3, eq. 1-6 and Algorithm 1).
        trainable: all = the whole model; head = the language-model head alone, for an encoder that came without one.
        encoder_mask: share of the encoder's tokens that is corrupted.
        decoder_mask: share of the decoder's tokens that is corrupted.
        mask_unit: what random masking draws: token = single tokens, as in the papers; word = whole words, as in the
            code of 001.
        importance_noise: standard deviation of the noise on AMI (003 Algorithm 1).
        max_length: tokens of a passage, [CLS] and [SEP] included.
        heldout_fraction: share of the passages that is held out to measure the loss.
        heldout_limit: most passages that are held out.
    """
    from stillhouse.surfaces.component import run_component

    run_component("pretrain", locals())
