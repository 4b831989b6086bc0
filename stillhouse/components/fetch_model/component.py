# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def fetch_model(
    encoder: Output[Model],
    metrics: Output[Metrics],
    model: str = "bert-base-uncased",
    weights: str = "own",
    weights_seed: int = 42,
    layers: Optional[int] = None,
    pooling: Optional[str] = None,
    query_length: int = 32,
    passage_length: int = 144,
    query_prompt: Optional[str] = None,
    passage_prompt: Optional[str] = None,
):
    """Fetches the model that training starts from and saves it in a folder.

    Args:
        encoder: the starting model.
        metrics: the step's figures.
        model: a model folder, package:NAME of an installed package, or a hub name; none = no model, for a generator
            or a re-ranker that starts from the same model as the rest.
        weights: own = the model's; random = its configuration and tokenizer with random parameters from
            weights_seed, for a model without pre-training (Chang et al. 2020 Table 3).
        weights_seed: seed of the parameters, for weights random.
        layers: keep only this many of the first Transformer layers; null = all.
        pooling: how token states become a vector; null = the model's own, else [CLS].
        query_length: tokens of a query, special tokens included (SimLM Table 13).
        passage_length: tokens of a passage, special tokens included (SimLM Table 13).
        query_prompt: text before every query, as 'query: ' for E5, including its last space; null = the model's
            own, empty = nothing.
        passage_prompt: text before every passage, as 'passage: ' for E5; null = the model's own, empty = nothing.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("fetch-model", locals())
