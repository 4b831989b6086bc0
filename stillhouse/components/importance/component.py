# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import HTML, Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def importance(
    tokens: Input[Dataset],
    importance: Output[Dataset],
    metrics: Output[Metrics],
    html: Output[HTML],
    tokenizer: Input[Model] = None,
    counts: Input[Dataset] = None,
    window: int = 4,
    unit: str = "pieces",
    memory_mib: int = 1024,
    edges: str = "equation",
    definition: str = "tokens",
    min_count: int = 1,
    own: bool = True,
    picture_rate: float = 0.5,
    picture_noise: float = 1.0,
):
    """Counts n-grams and scores every token by its average mutual information (CDMAE eq. 7-8).

    Args:
        tokens: the token arrays.
        importance: n-gram counts and one AMI value per token.
        metrics: the step's figures.
        html: what gets masked, as a page.
        tokenizer: the model whose tokenizer split the passages; its words label the plot.
        counts: n-gram counts of other passages, to add to these.
        window: longest n-gram to count: L of CDMAE eq. 8.
        unit: unit of an n-gram: word pieces, as the model reads them, or whole words (each piece scores as its
            word).
        memory_mib: MiB of memory for counting; the rest goes to disk.
        edges: terms of CDMAE eq. 8 that are missing at a passage's edges: equation = count as 0, present = leave
            out.
        definition: PMI of more than two tokens: against the single tokens, or against the most likely segmentation.
        min_count: drop n-grams of two or more that occur less often; their PMI is 0.
        own: count these passages; false = score them with --counts alone.
        picture_rate: share of tokens masked in the picture of what gets masked (CDMAE's decoder).
        picture_noise: noise on AMI in the picture (CDMAE Algorithm 1).
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("importance", locals())
