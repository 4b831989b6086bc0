# Rendered by `python -m components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Output

from components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def importance(
    tokens: Input[Dataset],
    importance: Output[Dataset],
    metrics: Output[Metrics],
    window: int = 4,
    edges: str = "equation",
):
    """Counts n-grams and scores every token by its average mutual information (003 eq. 7-8).

    Args:
        tokens: the token arrays.
        importance: n-gram counts and one AMI value a token.
        metrics: the step's figures.
        window: longest n-gram that is counted: L of 003 eq. 8.
        edges: terms of 003 eq. 8 that do not exist at a passage's edges: equation = count as 0, present = are left
            out.
    """
    from stillhouse.surfaces.component import run_component

    run_component("importance", locals())
