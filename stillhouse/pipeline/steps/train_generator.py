"""Step `train-generator`: fine-tunes a language model on labelled pairs, so that it writes questions like theirs."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.config import same_setting, setting
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.pipeline.steps.generate_queries import LOCAL
from stillhouse.pipeline.steps.generate_queries import Config as WritingConfig
from stillhouse.pipeline.steps.spec import CURVES, Paths, Port, Report, Step
from stillhouse.training.settings import GeneratorConfig


@dataclass(frozen=True, kw_only=True)
class Config(GeneratorConfig):
    """The model, its prompt, and how it learns from pairs of a passage and its question."""

    model: str = setting(
        LOCAL,
        "the language model to start from: a folder, package:NAME of an installed package, or a hub name",
        location=True,
    )
    kind: str = same_setting(WritingConfig, "kind")
    prompt: str | None = setting(
        None, "the prompt for a passage, with {title} and {text}; null = the built-in one for one text"
    )
    passage_tokens: int = setting(200, "read this many tokens of a passage", minimum=8)

    def __post_init__(self) -> None:
        if self.prompt is not None and ("{text}" not in self.prompt or "{number}" in self.prompt):
            raise InputError(
                "prompt needs {text} and must not have {number}, since each example is one question; change it"
            )


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import torch

    from stillhouse.core.curves import describe, metrics_of, write_curves
    from stillhouse.corpus.store import Corpus
    from stillhouse.models.model_place import generator_place
    from stillhouse.models.text_generator import TextGenerator
    from stillhouse.training.generator_training import fit_generator

    torch.manual_seed(config.seed)
    place = generator_place(config.model)
    generator = TextGenerator.load(place, config.kind, config.prompt, config.passage_tokens)
    rows, pairs = fit_generator(generator, Corpus.open(inputs["corpus"]), config, context)
    generator.save(outputs["generator"])
    write_curves(outputs["curves"], rows)
    return Report(
        f"{pairs['train']:,} pairs; {describe(rows)}",
        metrics=metrics_of(rows),
        facts={"prompt": generator.prompt, "pairs": pairs},
    )


STEP = Step(
    "train-generator",
    "fine-tunes a language model to write the questions that passages answer",
    Config,
    inputs=(Port("corpus", "the corpus folder with labelled questions"),),
    outputs=(Port("generator", "the language model, for `generate-queries`", kind="model"), CURVES),
    run=run,
    version=2,
)
