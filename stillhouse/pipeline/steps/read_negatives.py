"""Step `read-negatives`: imports hard negatives that were made elsewhere, such as a TREC run, for a training."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.pipeline.steps.spec import CORPUS, GATE, Paths, Port, Report, Step
from stillhouse.training.settings import NegativesConfig


@dataclass(frozen=True, kw_only=True)
class Config(NegativesConfig):
    """The file with the negatives, and which to leave out."""

    file: str = setting(
        "",
        "a TREC run of the train and dev queries, MS MARCO's triples (`query, positive, negative`, tabs between) or "
        "lists of negatives (JSON lines), or DPR's biencoder-*.json",
        location=True,
    )
    negatives_depth: int = setting(
        200, "hard negatives per query: the first ones of its list (SimLM Table 13)", minimum=1
    )


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from pathlib import Path

    from stillhouse.core.errors import InputError
    from stillhouse.corpus.store import Corpus
    from stillhouse.training.mine_negatives import MiningQueries, best_of
    from stillhouse.training.negative_files import read_negatives
    from stillhouse.training.negatives import Negatives, describe

    if not config.file.strip():
        raise InputError("set `file` to the file with the negatives")
    corpus = Corpus.open(inputs["corpus"])
    asked = MiningQueries(corpus, config.negatives_among, config.without_answers)
    # A list may hold relevant passages, which are not negatives; how many contain an answer is not known.
    deepest = asked.most_answers + config.negatives_depth * (1 if config.negatives_among == "corpus" else 2)
    deepest += config.negatives_depth if config.without_answers else 0
    lists = read_negatives(Path(config.file), asked.queries["query_id"], deepest)
    rows_QD, unknown = lists.rows(corpus.passage_ids.find)
    if not (rows_QD >= 0).any():
        raise InputError(
            f"{config.file} names no passage of {inputs['corpus']} for any of its train and dev queries; do its ids "
            "match the corpus?"
        )
    kept_QD, _ = best_of(asked, rows_QD, config.negatives_depth)
    negatives = Negatives(asked.queries[["query_id", "split"]], kept_QD)
    negatives.write(outputs["negatives"])
    line = describe(negatives)
    if unknown:
        line += f"; {unknown:,} of the {len(lists.passages):,} passages that it names are not in the corpus"
    return Report(
        line,
        facts={
            "queries_without_negatives": int((negatives.counts() == 0).sum()),
            "unknown_passages": unknown,
            "lists_of_other_queries": lists.others,
        },
    )


STEP = Step(
    "read-negatives",
    "imports hard negatives from a TREC run, MS MARCO's lists or DPR's training files",
    Config,
    inputs=(CORPUS, GATE),
    outputs=(Port("negatives", "the hard negatives"),),
    run=run,
)
