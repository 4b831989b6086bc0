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
            or a re-ranker that begins as the model that all else starts from.
        weights: own = the model's; random = its configuration and tokenizer with parameters drawn from
            weights_seed, as a model without pre-training begins (Chang et al. 2020 Table 3).
        weights_seed: weights random alone: the seed of the parameters.
        layers: keep only this many of the first Transformer layers; null = all.
        pooling: how token states become a vector; null = the model's own, [CLS] if it says nothing.
        query_length: tokens of a query, special tokens included (SimLM Table 13).
        passage_length: tokens of a passage, special tokens included (SimLM Table 13).
        query_prompt: what stands before every query, as 'query: ' for E5, its last space included; null = the
            model's own, empty = nothing.
        passage_prompt: what stands before every passage, as 'passage: ' for E5; null = the model's own, empty =
            nothing.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("fetch-model", locals())
