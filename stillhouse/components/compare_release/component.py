# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def compare_release(
    corpus: Input[Dataset],
    champion: Input[Dataset],
    challenger: Input[Dataset],
    verdict: Output[Dataset],
    metrics: Output[Metrics],
    champion_index: Input[Dataset] = None,
    challenger_index: Input[Dataset] = None,
    measure: str = "RR@10",
    alpha: float = 0.05,
    most_loss: float = 0.02,
    least_queries: int = 1,
    bootstrap_samples: int = 2000,
    randomisation_samples: int = 10000,
    seed: int = 42,
):
    """Compares a challenger's run with the champion's and decides which to release.

    Args:
        corpus: the corpus folder.
        champion: the run of the released retriever.
        challenger: the run of the retriever that may replace it.
        verdict: which one to release, and why.
        metrics: the step's figures.
        champion_index: the released index, of any corpus.
        challenger_index: the index that may replace it.
        measure: the measure that decides, by its name in ir_measures.
        alpha: refuse if worse with a p-value of at most this.
        most_loss: refuse if the mean falls by more than this, significant or not; for a new index of one retriever,
            its recall.
        least_queries: refuse if there are fewer test queries.
        bootstrap_samples: bootstrap samples for the interval.
        randomisation_samples: random sign flips for the p-value.
        seed: seed of every random choice.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("compare-release", locals())
