# Rendered by `python -m components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import Dataset, Metrics, Output

from components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def ingest(
    corpus: Output[Dataset],
    metrics: Output[Metrics],
    source: str = "sample",
    format: str = "auto",
    dev_fraction: float = 0.1,
    max_articles: int = 0,
    max_train_queries: int = 0,
    max_dev_queries: int = 0,
    max_test_queries: int = 0,
    seed: int = 42,
):
    """Reads a source of passages, queries and qrels into Parquet.

    Args:
        corpus: the corpus folder.
        metrics: the step's figures.
        source: a folder, a .jsonl[.gz] file, or `sample`, the built-in one.
        format: how the source is read; `auto` finds out and says so.
        dev_fraction: the part of the train queries that becomes dev, where a source has no dev split.
        max_articles: at most so many articles, a seeded sample for a trial; queries on others leave; 0 takes all.
        max_train_queries: at most so many train queries, a seeded sample; 0 takes all.
        max_dev_queries: at most so many dev queries, a seeded sample; 0 takes all.
        max_test_queries: at most so many test queries, a seeded sample; 0 takes all.
        seed: seed of every random choice.
    """
    from stillhouse.surfaces.component import run_component

    run_component("ingest", locals())
