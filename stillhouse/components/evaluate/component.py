# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import HTML, Dataset, Input, Markdown, Metrics, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def evaluate(
    corpus: Input[Dataset],
    runs: Input[Dataset],
    evaluation: Output[Dataset],
    metrics: Output[Metrics],
    html: Output[HTML],
    summary: Output[Markdown],
    curves: Input[Dataset] = None,
    measures: list = ["RR@10", "nDCG@10", "R@50", "R@100"],
    bootstrap_samples: int = 2000,
    randomisation_samples: int = 10000,
    examples: int = 8,
    compared: Optional[list] = None,
    title: str = "Stillhouse evaluation",
    seed: int = 42,
):
    """Evaluates every system, tests the differences and writes one report.

    Args:
        corpus: the corpus folder.
        runs: a folder with one named folder for each: the run of a system.
        evaluation: metrics, significance tests and the report.
        metrics: the step's figures.
        html: the report, as a page.
        summary: the figures of every system, as a table.
        curves: a folder with one named folder for each: the loss curves of a training stage.
        measures: a list of measures, named as in ir_measures; Answer@k looks for an answer in the text of a passage.
        bootstrap_samples: bootstrap samples per interval.
        randomisation_samples: random sign flips per randomisation test.
        examples: how many example queries the report shows.
        compared: the system and the baseline to show query by query, as [distilled, bm25]; null = those of the
            headline.
        title: title of the report.
        seed: seed of every random choice.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("evaluate", locals())
