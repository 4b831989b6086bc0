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
    query_length: Optional[int] = None,
    passage_length: Optional[int] = None,
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
    max_length: Optional[int] = None,
    heldout_fraction: float = 0.05,
    max_eval_samples: int = 4096,
    gradient_accumulation_steps: int = 1,
    bucket_steps: str = "64",
    signals: bool = True,
    metric_for_best_model: str = "heldout_loss",
    patience: Optional[int] = None,
    eval_share: str = "0.1",
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
        query_length: pair tasks: tokens per query, including [CLS] and [SEP]; null = the query_length of the model
            to start from (64 in Chang et al. §4.1).
        passage_length: pair tasks: tokens per passage, including [CLS] and [SEP]; null = the passage_length of the
            model to start from (288 in Chang et al. §4.1).
        ict_keep: pair tasks: share of ict pairs that keep the sentence in the passage (Chang et al. 2020: none;
            ORQA: 0.1).
        pair_title: pair tasks: sep = title [SEP] passage (Chang et al. §4.1); space = title and passage as
            retrieval reads them; none = only the passage.
        pair_encoder: pair tasks: transformer = the initial model; bow_mlp = bag of words and two layers (Chang et
            al. §4.2).
        towers: pair tasks: shared = one encoder for queries and passages; separate = one each.
        projection: pair tasks: width of the linear layer on the pooled vector; null = no layer.
        pair_normalize: pair tasks: cosine instead of inner product (Chang et al. 2020 eq. 1, note 1); adapt
            temperature.
        temperature: pair tasks: divide the softmax scores by this.
        correction: pair tasks: subtract the log of a passage's sampling probability from its score (Chang et al.
            2020 §2).
        mini_batch_size: pair tasks: queries or passages encoded together, grouped by length; null = the whole
            batch, or groups of similar length if faster.
        gradient_cache: pair tasks: encode every text twice, so a batch needs the memory of mini_batch_size texts.
        objective: what to learn:
            mlm: masked tokens from their context; trains a language-model head or a generator (Devlin et al. 2019;
                SimLM Table 7, CDMAE eq. 3)
            simlm: replaced tokens, by the encoder and through the bottleneck by a 2-layer decoder, at all positions
                (SimLM §3.1, eq. 1-2)
            simlm_joint: simlm with a generator that keeps learning (SimLM Table 12)
            simlm_joint_random: simlm with a generator trained from scratch (SimLM Table 12)
            enc_dec_mlm: simlm's architecture on masked tokens, without a generator (SimLM §5.1)
            enc_dec_rtd: simlm's architecture with replaced token detection (SimLM §5.1)
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
            cdmae: masked tokens, by the encoder and, through a projection, by a decoder with important tokens
                masked (CDMAE §3, eq. 1-6 and Algorithm 1)
            simlm_importance: simlm with important tokens replaced in the decoder (this project: SimLM with the
                masking of CDMAE)
            bow_importance: bow with important tokens masked in the encoder (this project: BoW with the masking of
                CDMAE)
            cdmae_bow: cdmae plus the bag of words (this project: CDMAE with the task of BoW)
            ict: a sentence finds the rest of its passage (inverse cloze task) (Chang et al. 2020 §3)
            bfs: a sentence of an article's first section finds another passage of the article (body first
                selection) (Chang et al. 2020 §3)
            wlp: a sentence of an article's first section finds a passage of an article that links to it (wiki link
                prediction) (Chang et al. 2020 §3)
            ict+bfs+wlp, ict+bfs, ict+wlp, bfs+wlp: an equal mix of these tasks (Chang et al. 2020 §4.1)
            none: nothing; keep the model unchanged.
        trainable: all = the whole model; head = only the language-model head; missing_head = head if the encoder
            came without one, else no training.
        encoder_mlm_probability: share of the encoder's tokens to corrupt.
        decoder_mlm_probability: share of the decoder's tokens to corrupt, or to hide from each position
            (enhanced_decoding).
        mask_unit: unit of random masking: token = single tokens, as in the papers; word = whole words, as in
            SimLM's code.
        mask_replacement: what masked tokens become: null = the objective's choice; mask = [MASK]; 80_10_10 =
            [MASK], a random token or the token itself, as in BoW's code for its objectives.
        decoder_layers: layers of the decoder; null = the objective's choice.
        decoder_init: decoder initialisation: null = the objective's choice; last_layers = copies of the encoder's;
            random.
        bottleneck: input of the decoder: null = the objective's choice; raw = the vector itself; linear = a
            projection of it.
        visibility_masks: enhanced_decoding: null = draw the visible tokens for each position, as in the paper; n =
            each position takes one of n masks of its passage, as in RetroMAE's code (256).
        importance_noise: standard deviation of the noise on AMI (CDMAE Algorithm 1).
        loss_mean: passage = mean over a passage's positions, then over passages, as in SimLM eq. 2; token = mean
            over all predicted tokens of the whole batch (SimLM's code: of each GPU's part).
        generator_weight: weight of the loss of a generator that learns (SimLM's code).
        bag_logits: bag of words: embeddings = the vector times the word embeddings, as in BoW eq. 11; head = the
            whole language-model head, as in BoW's code.
        bag_weight_end: bag of words: its weight falls along a cosine from 1 to this by the last step; 1 = constant,
            as in BoW; BoW's code has 0.1.
        max_length: tokens per passage, including [CLS] and [SEP]; null = the passage_length of the model to start
            from (144 in SimLM Table 11).
        heldout_fraction: share of the passages to hold out for measuring the loss.
        max_eval_samples: hold out at most this many passages.
        gradient_accumulation_steps: compute a step's batch in this many parts, one after another, to save memory.
        bucket_steps: sort the passages of this many steps by length, so that batches need little padding; null =
            draw batches at random.
        signals: with every held-out loss, also measure indicators of retrieval quality.
        metric_for_best_model: metric that selects the best parameters: heldout_loss = the objective's own;
            ict_RR@10 = retrieval on ICT pairs of held-out passages; heldout_mlm_loss; coverage@20 = input tokens
            among the vector's top 20 (BoW Algorithm 1).
        patience: stop after this many measurements in a row without improvement; null = never.
        eval_share: without eval_steps, measurements read at most this share of what training reads; a trained
            passage counts 3 times. To fit, 10 measurements become 5, then held-out passages become fewer, down to
            100, then measurements again, then held-out passages. null = no limit.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("pretrain", locals())
