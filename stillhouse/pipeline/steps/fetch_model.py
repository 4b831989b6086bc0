"""Step `fetch-model`: saves a fixed copy of the model that training starts from."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.core.monitoring.activity import doing
from stillhouse.models.settings import NO_MODEL, PASSAGE_LENGTH, QUERY_LENGTH
from stillhouse.pipeline.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Which model, how much of it, and how it turns a text into a vector."""

    model: str = setting(
        "bert-base-uncased",
        "a model folder, package:NAME of an installed package, or a hub name; none = no separate model, for a "
        "generator or a re-ranker with the run's base model",
        location=True,
    )
    weights: str = setting(
        "own",
        "own = the model's; random = its configuration and tokenizer with random parameters from weights_seed, "
        "for a model without pre-training (Chang et al. 2020 Table 3)",
        choices=("own", "random"),
    )
    weights_seed: int = setting(42, "seed of the parameters, for weights random", minimum=0, maximum=2**63 - 1)
    layers: int | None = setting(None, "keep only this many of the first Transformer layers; null = all", minimum=1)
    pooling: str | None = setting(
        None, "how token states become a vector; null = the model's own, else [CLS]", choices=("cls", "mean")
    )
    query_length: int = setting(QUERY_LENGTH, "tokens of a query, special tokens included (SimLM Table 13)", minimum=3)
    passage_length: int = setting(
        PASSAGE_LENGTH, "tokens of a passage, special tokens included (SimLM Table 13)", minimum=3
    )
    query_prompt: str | None = setting(
        None,
        "text before every query, such as 'query: ' for E5, including the trailing space; null = the model's own, "
        "empty = nothing",
    )
    passage_prompt: str | None = setting(
        None, "text before every passage, such as 'passage: ' for E5; null = the model's own, empty = nothing"
    )


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    if config.model == NO_MODEL:
        return Report("no model", facts={"model": NO_MODEL})
    with doing("loading PyTorch and Transformers"):
        from stillhouse.models.source import fetch

    random = config.weights == "random"
    facts = fetch(
        config.model,
        config.layers,
        config.pooling,
        config.query_length,
        config.passage_length,
        outputs["encoder"],
        query_prompt=config.query_prompt,
        passage_prompt=config.passage_prompt,
        random_from=config.weights_seed if random else None,
    )
    name = f"{config.model} with random weights" if random else config.model
    kind = (
        f"{facts['layers']} layers of width {facts['width']}, {facts['pooling']} pooling"
        if "layers" in facts
        else f"a bag of words that makes vectors of width {facts['width']}"
    )
    return Report(f"{name}: {kind}, language-model head {facts['lm_head']}", facts=facts)


STEP = Step(
    "fetch-model",
    "fetches the model that training starts from and saves it in a folder",
    Config,
    inputs=(),
    outputs=(Port("encoder", "the base model", kind="model"),),
    run=run,
    version=3,
)
