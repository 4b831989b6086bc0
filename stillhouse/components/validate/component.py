# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import HTML, Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def validate(
    corpus: Input[Dataset],
    validation: Output[Dataset],
    metrics: Output[Metrics],
    html: Output[HTML],
    encoder: Input[Model] = None,
    max_rejected_fraction: float = 0.01,
    max_rejected_link_fraction: float = 1.0,
    min_passages: int = 1,
    min_train_queries: int = 0,
    min_dev_queries: int = 0,
    min_test_queries: int = 0,
    max_passage_words: Optional[int] = None,
    max_truncated_fraction: float = 1.0,
    max_duplicate_text_fraction: float = 0.1,
):
    """Checks the corpus with Great Expectations and stops the run if it violates a threshold.

    Args:
        corpus: the corpus folder.
        validation: the report and the verdict.
        metrics: the step's figures.
        html: the report, as a page.
        encoder: the model that says which passages it truncates.
        max_rejected_fraction: the largest share of rejected rows, overall and of each kind (links apart).
        max_rejected_link_fraction: the largest share of rejected links.
        min_passages: at least this many passages.
        min_train_queries: at least this many train queries.
        min_dev_queries: at least this many dev queries.
        min_test_queries: at least this many test queries.
        max_passage_words: a passage of more words counts as truncated by the model; null = what the given encoder
            reads, else 110. 110 English words are about 144 tokens. White space separates words, and a character of
            a script without spaces (Chinese, Japanese, Thai) is one.
        max_truncated_fraction: the largest share of truncated passages; 1 = only warn.
        max_duplicate_text_fraction: the largest share of passages that repeat another's title and text.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("validate", locals())
