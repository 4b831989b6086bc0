# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import HTML, Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def pretrain(
    tokens: Input[Dataset],
    init: Input[Model],
    encoder: Output[Model],
    curves: Output[Dataset],
    metrics: Output[Metrics],
    html: Output[HTML],
    generator: Input[Model] = None,
    importance: Input[Dataset] = None,
    epochs: str = "3.0",
    max_steps: Optional[int] = None,
    batch_size: int = 64,
    learning_rate: float = 0.0003,
    warmup_ratio: float = 0.1,
    warmup_steps: Optional[int] = None,
    last_step: Optional[int] = None,
    weight_decay: float = 0.0,
    max_grad_norm: str = "1.0",
    eval_steps: Optional[int] = None,
    precision: str = "auto",
    padding: str = "auto",
    seed: int = 42,
    query_length: int = 64,
    passage_length: int = 288,
    ict_keep: float = 0.0,
    pair_title: str = "sep",
    pair_encoder: str = "transformer",
    towers: str = "shared",
    projection: str = "512",
    pair_normalize: bool = False,
    temperature: float = 1.0,
    correction: bool = True,
    mini_batch_size: Optional[int] = None,
    gradient_cache: bool = False,
    objective: str = "simlm",
    trainable: str = "all",
    encoder_mlm_probability: float = 0.3,
    decoder_mlm_probability: float = 0.5,
    mask_unit: str = "token",
    mask_replacement: Optional[str] = None,
    decoder_layers: Optional[int] = None,
    decoder_init: Optional[str] = None,
    bottleneck: Optional[str] = None,
    visibility_masks: Optional[int] = None,
    importance_noise: float = 1.0,
    loss_mean: str = "passage",
    generator_weight: float = 0.2,
    bag_logits: str = "embeddings",
    bag_weight_end: float = 1.0,
    max_length: int = 144,
    heldout_fraction: float = 0.05,
    max_eval_samples: int = 4096,
    gradient_accumulation_steps: int = 1,
    bucket_steps: str = "64",
    signals: bool = True,
    metric_for_best_model: str = "heldout_loss",
    patience: Optional[int] = None,
):
    """Pre-trains an encoder on unlabelled passages with one of the objectives.

    Args:
        tokens: the token arrays.
        init: the model to start from.
        encoder: the pre-trained encoder with its language-model head.
        curves: training and held-out loss.
        metrics: the step's figures.
        html: its loss curves, as a page.
        generator: the masked language model that replaces tokens.
        importance: AMI values for importance-aware masking.
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
        query_length: pair tasks: tokens of a query, [CLS] and [SEP] included.
        passage_length: pair tasks: tokens of a passage, [CLS] and [SEP] included.
        ict_keep: pair tasks: share of the ict pairs whose sentence stays in the passage (Chang et al. 2020: none;
            ORQA: 0.1).
        pair_title: pair tasks: sep = title [SEP] passage (Chang et al. §4.1); space = title and passage as
            retrieval reads them; none = the passage alone.
        pair_encoder: pair tasks: transformer = the model to start from; bow_mlp = bag of words and two layers
            (Chang et al. §4.2).
        towers: pair tasks: shared = one encoder for queries and passages; separate = one each.
        projection: pair tasks: width of the linear layer on the pooled vector; null = no layer.
        pair_normalize: pair tasks: cosine instead of inner product (Chang et al. 2020 eq. 1, note 1); mind the
            temperature.
        temperature: pair tasks: what scores are divided by in the softmax.
        correction: pair tasks: subtract the log of a passage's sampling probability from its score (Chang et al.
            2020 §2).
        mini_batch_size: pair tasks: queries or passages of a batch encoded together, texts of like length; null =
            all of them, or those of like length where that is faster.
        gradient_cache: pair tasks: encode every text twice, so that a batch takes the memory of mini_batch_size
            texts.
        objective: what is learned:
            mlm: masked tokens from their context; trains a language-model head or a generator (Devlin et al. 2019;
                SimLM Table 7, CDMAE eq. 3)
            simlm: replaced tokens, by the encoder and through the bottleneck by a 2-layer decoder, at all positions
                (SimLM §3.1, eq. 1-2)
            simlm_joint: simlm whose generator goes on learning (SimLM Table 12)
            simlm_joint_random: simlm whose generator learns from random parameters (SimLM Table 12)
            enc_dec_mlm: simlm's architecture on masked tokens, without a generator (SimLM §5.1)
            enc_dec_rtd: simlm's architecture, which tells replaced tokens from original ones (SimLM §5.1)
            condenser: masked tokens by a head that reads the last [CLS] and, by skip connections, middle token
                states (Gao and Callan 2021; SimLM §5.1)
            autoencoder: the whole passage from its vector alone (SimLM §5.1)
            auto_encoding: masked tokens, by the encoder and through the bottleneck by a 1-layer decoder (BoW §3.1,
                eq. 4-5)
            auto_regression: masked tokens, and each next token through the bottleneck by a 1-layer causal decoder
                (BoW §3.1, eq. 6-7)
            enhanced_decoding: masked tokens, and every token from the bottleneck and the tokens visible to its
                position (RetroMAE) (BoW §3.1, eq. 8-10; CDMAE Table 6)
            bow: masked tokens, and the passage's set of tokens from its vector; no decoder (BoW §3.3, eq. 12-13)
            cdmae: masked tokens, by the encoder and through a projection by a decoder whose important tokens are
                masked (CDMAE §3, eq. 1-6 and Algorithm 1)
            simlm_importance: simlm whose decoder has its important tokens replaced (this project: SimLM with the
                masking of CDMAE)
            bow_importance: bow whose encoder has its important tokens masked (this project: BoW with the masking of
                CDMAE)
            cdmae_bow: cdmae and the bag of words together (this project: CDMAE with the task of BoW)
            ict: a sentence finds the rest of its passage (inverse cloze task) (Chang et al. 2020 §3)
            bfs: a sentence of an article's first section finds another passage of the article (body first
                selection) (Chang et al. 2020 §3)
            wlp: a sentence of an article's first section finds a passage of an article that links to it (wiki link
                prediction) (Chang et al. 2020 §3)
            ict+bfs+wlp, ict+bfs, ict+wlp, bfs+wlp: these tasks in equal shares (Chang et al. 2020 §4.1)
            none: nothing; the model passes unchanged.
        trainable: all = the whole model; head = the language-model head alone; missing_head = the same for an
            encoder that came without one, and no training at all for another.
        encoder_mlm_probability: share of the encoder's tokens that is corrupted.
        decoder_mlm_probability: share of the decoder's tokens that is corrupted, or hidden from a position by
            enhanced_decoding.
        mask_unit: what random masking draws: token = single tokens, as in the papers; word = whole words, as in the
            code of SimLM.
        mask_replacement: what masked tokens become: null = as the objective says; mask = [MASK]; 80_10_10 = [MASK],
            a random token or itself, as in the code of BoW for its objectives.
        decoder_layers: layers of the decoder; null = as the objective says.
        decoder_init: how the decoder begins: null = as the objective says; last_layers = copies of the encoder's;
            random.
        bottleneck: what the decoder gets of the vector: null = as the objective says; raw = itself; linear = a
            projection of it.
        visibility_masks: enhanced_decoding: null = every position's visible tokens are drawn anew, as in the paper;
            n = each position takes one of n masks of its passage, as in the code of RetroMAE (256).
        importance_noise: standard deviation of the noise on AMI (CDMAE Algorithm 1).
        loss_mean: passage = the mean over a passage's positions, then over passages, as in SimLM eq. 2; token =
            over all predicted tokens of a batch, in however many parts; the code of SimLM has that of each GPU's
            part.
        generator_weight: weight of the loss of a generator that learns (the code of SimLM).
        bag_logits: bag of words: embeddings = the vector times the word embeddings, as in BoW eq. 11; head =
            through the whole language-model head, as in the code of BoW.
        bag_weight_end: bag of words: its weight falls along a cosine from 1 to this by the last step; 1 = never, as
            in BoW; the code of BoW has 0.1.
        max_length: tokens of a passage, [CLS] and [SEP] included.
        heldout_fraction: share of the passages that is held out to measure the loss.
        max_eval_samples: most passages that are held out.
        gradient_accumulation_steps: a step's batch is computed in this many parts, one after the other, in the
            memory of one of them.
        bucket_steps: passages of this many steps are sorted by length and dealt into batches, which need little
            padding; null = batches are drawn at random.
        signals: measure signs of retrieval quality on held-out passages with every held-out loss.
        metric_for_best_model: what the best parameters are chosen by: heldout_loss = the objective's own; ict_RR@10
            = retrieval by ICT pairs of held-out passages; heldout_mlm_loss; coverage@20 = input tokens among the
            vector's top 20 (BoW Algorithm 1).
        patience: stop after this many measurements in a row without a better one; null = never.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("pretrain", locals())
