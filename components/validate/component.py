# Rendered by `python -m components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import HTML, Dataset, Input, Metrics, Output

from components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def validate(
    corpus: Input[Dataset],
    validation: Output[Dataset],
    metrics: Output[Metrics],
    html: Output[HTML],
    seed: int = 42,
):
    """Checks the corpus with Great Expectations and stops the run when it breaks a threshold.

    Args:
        corpus: the corpus folder.
        validation: the report and the verdict.
        metrics: the step's figures.
        html: the report, as a page.
        seed: seed of every random choice.
    """
    from stillhouse.surfaces.component import run_component

    run_component("validate", locals())
