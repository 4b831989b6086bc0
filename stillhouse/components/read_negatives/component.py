# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def read_negatives(
    corpus: Input[Dataset],
    negatives: Output[Dataset],
    metrics: Output[Metrics],
    validation: Input[Dataset] = None,
    negatives_among: str = "corpus",
    without_answers: bool = False,
    file: str = "",
    negatives_depth: int = 200,
):
    """Imports hard negatives from a TREC run, MS MARCO's lists or DPR's training files.

    Args:
        corpus: the corpus folder.
        negatives: the hard negatives.
        metrics: the step's figures.
        validation: the verdict that lets the run continue.
        negatives_among: which passages may be negatives: corpus = all, as in SimLM; answers = only those that
            answer another query of the same split, for a corpus whose splits divide its passages: those of the
            other splits would be memorized as wrong; train_answers = the same, but all passages for dev queries,
            which choose models.
        without_answers: leave out passages that hold an answer to the query, by the rules of `Answer@k` (SimLM
            Appendix B).
        file: a TREC run of the train and dev queries, MS MARCO's triples (`query, positive, negative`, tabs
            between) or lists of negatives (JSON lines), or DPR's biencoder-*.json.
        negatives_depth: hard negatives per query: the first ones of its list (SimLM Table 13).
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("read-negatives", locals())
