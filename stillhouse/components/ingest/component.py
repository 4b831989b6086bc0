# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def ingest(
    corpus: Output[Dataset],
    metrics: Output[Metrics],
    generated: Input[Dataset] = None,
    source: str = "sample",
    repo: Optional[str] = None,
    revision: Optional[str] = None,
    format: str = "auto",
    titles: str = "space",
    splits: Optional[dict] = None,
    columns: Optional[dict] = None,
    answer_kind: str = "auto",
    dpr_positives: str = "all",
    reqa_split: str = "80/20",
    distractors: Optional[str] = None,
    max_distractors: Optional[int] = None,
    dev_fraction: float = 0.1,
    test_fraction: float = 0.0,
    max_articles: Optional[int] = None,
    max_train_queries: Optional[int] = None,
    max_dev_queries: Optional[int] = None,
    max_test_queries: Optional[int] = None,
    queries: str = "auto",
    pair_tasks: Optional[list] = None,
    pair_queries_per_article: int = 6,
    max_pair_queries: str = "50000",
    pair_sentence_words: int = 6,
    pair_language: str = "en",
    heldout_dev_articles: float = 0.1,
    heldout_test_articles: float = 0.1,
    mixed_pairs: float = 0.0,
    test_queries: Optional[str] = None,
    train_queries: Optional[str] = None,
    documents: Optional[str] = None,
    seed: int = 42,
):
    """Converts a source of passages, queries and qrels to Parquet.

    Args:
        corpus: the corpus folder.
        metrics: the step's figures.
        generated: questions about these passages from `generate-queries`: added to the labelled train queries or,
            without any, used as train, dev and test queries instead of pair queries.
        source: a folder or file, `sample` (built in), or `ir_datasets:<id>`.
        repo: a DVC repository (a git URL or a folder) that contains `source`; null = source is local.
        revision: the repository's branch, tag or commit; null = its default branch.
        format: source format; `auto` detects and reports it.
        titles: what every model and BM25 read between a passage's title and its text: `space`, `colon` (title:
            text), `line`, or `sep`, the tokenizer's separator (BM25: a space); `left_out` leaves titles out.
        splits: new names of source splits, as {dev: test} if the test labels are not public.
        columns: tables: unusual names of columns, as {passages.text: body, queries.id: number}.
        answer_kind: what an answer is, if its source does not say: a text, or a regular expression; `auto` =
            regular expressions only in DPR's CuratedTREC.
        dpr_positives: DPR: whether all positives of a question are relevant, or only the first.
        reqa_split: ReQA: the split of its queries into train and test (Chang et al. 2020 §4.1).
        distractors: another source, whose passages are added without its queries (Chang et al. 2020 Table 6).
        max_distractors: at most this many distractors, a seeded sample; null = all.
        dev_fraction: the share of train queries that becomes dev, if a source has no dev split.
        test_fraction: about the share of train queries that becomes test, if a source has neither dev nor test
            queries.
        max_articles: at most this many articles, a seeded sample; queries about others are dropped; null = all.
        max_train_queries: at most this many train queries, a seeded sample; null = all.
        max_dev_queries: at most this many dev queries, a seeded sample; null = all.
        max_test_queries: at most this many test queries, a seeded sample; null = all.
        queries: where train queries come from: `source`, its labelled ones; `pairs`, made from the corpus by the
            pair tasks, with held-out articles for dev and test; `auto`, pairs if the source has no train queries
            and no generated ones are given.
        pair_tasks: a list of the pair tasks ict, bfs and wlp, which ask with sentences; null = those that the
            corpus supports.
        pair_queries_per_article: at most this many pair queries per article, divided evenly among the tasks, at
            least one each; max_*_queries limit pair queries and labelled ones separately.
        max_pair_queries: at most this many pair queries in all splits together, a seeded sample; null = all.
        pair_sentence_words: a shorter sentence makes no pair query.
        pair_language: the language whose rules split sentences, by its ISO 639-1 code.
        heldout_dev_articles: with pairs or generated queries, the share of articles whose queries are dev.
        heldout_test_articles: with pairs or generated queries, the share of articles whose queries are test.
        mixed_pairs: sentences of the corpus, each with its own passage, to add to the labelled train queries, as a
            share of these; 0 = none.
        test_queries: a folder with labelled test queries: queries.jsonl and qrels/test.tsv, in BEIR layout.
        train_queries: a folder with more train queries: queries.jsonl and qrels/train.tsv, in BEIR layout, as
            `stillhouse queries export` writes them; any that repeats a dev or test query is left out.
        documents: a folder with documents that add, replace and delete passages of the source: corpus.jsonl and
            deleted.jsonl, as `stillhouse documents export` writes them.
        seed: seed of every random choice.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("ingest", locals())
