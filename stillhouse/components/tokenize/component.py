# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def tokenize(
    corpus: Input[Dataset],
    tokenizer: Input[Model],
    tokens: Output[Dataset],
    metrics: Output[Metrics],
    validation: Input[Dataset] = None,
    max_length: Optional[int] = None,
    language: str = "en",
):
    """Tokenizes every passage once, into flat arrays.

    Args:
        corpus: the corpus folder.
        tokenizer: the model folder with the tokenizer.
        tokens: the token arrays.
        metrics: the step's figures.
        validation: the verdict that lets the run continue.
        max_length: tokens to keep per passage, including [CLS] and [SEP]; null = the passage_length of the
            tokenizer's model (144 in SimLM Table 11).
        language: ISO 639-1 code of the passages' language, for splitting sentences.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("tokenize", locals())
