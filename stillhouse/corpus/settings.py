"""Settings of the steps `ingest` (the source, how it is read and divided, and where queries come from) and `validate`.

Nothing heavy is imported here: both steps read it to declare their flags.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stillhouse.core.config import setting
from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import refuse_secret
from stillhouse.corpus.sources.options import REQA_SPLITS
from stillhouse.corpus.titles import TITLES

# Listed and not imported, so that the command line need not load the readers; a test compares both.
FORMATS = (
    "auto",
    "beir",
    "jsonl",
    "article-tree",
    "article-jsonl",
    "html-tree",
    "squad",
    "evaluator-json",
    "dpr",
    "msmarco",
    "reqa",
    "tables",
    "training",
    "ir_datasets",
)
QUERIES = ("auto", "source", "pairs")
TASKS = ("ict", "bfs", "wlp")
"""The pair tasks."""
SPLIT_BY = ("sentence", "paragraph", "heading")


def _most(of: str, default: int | None = None) -> Any:
    """A setting that limits how many of something are kept."""
    return setting(default, f"at most this many {of}; null = all", minimum=1)


@dataclass(frozen=True, kw_only=True)
class IngestSettings:
    """Settings of `ingest`."""

    source: str = setting("sample", "a folder or file, `sample` (built in), or `ir_datasets:<id>`", location=True)
    repo: str | None = setting(
        None, "a DVC repository (a git URL or a folder) that contains `source`; null = source is local", location=True
    )
    revision: str | None = setting(
        None, "the repository's branch, tag or commit; null = its default branch", location=True
    )
    format: str = setting("auto", "source format; `auto` detects and reports it", choices=FORMATS)
    titles: str = setting(
        "space",
        "what every model and BM25 read between a passage's title and its text: `space`, `colon` (title: text), "
        "`line`, or `sep`, the tokenizer's separator (BM25: a space); `left_out` leaves titles out",
        choices=tuple(TITLES),
    )
    split_tokens: int | None = setting(
        None,
        "split passages that have more tokens than this, with their title, into pieces that have no more; null = no",
        minimum=16,
    )
    split_overlap: int = setting(0, "how many tokens of a piece may repeat the end of the previous one", minimum=0)
    split_by: str = setting(
        "paragraph",
        "the units of a piece: whole `sentence`s; whole `paragraph`s, if they are short enough; or the same within "
        "the section of each Markdown `heading`",
        choices=SPLIT_BY,
    )
    splits: Mapping[str, str] | None = setting(
        None, "new names of source splits, as {dev: test} if the test labels are not public"
    )
    columns: Mapping[str, str] | None = setting(
        None, "tables: unusual names of columns, as {passages.text: body, queries.id: number}"
    )
    fields: tuple[str, ...] | None = setting(
        None,
        "a list of other fields of passages to keep, for filters in searches, such as product and date: keys of JSON, "
        "columns of tables, keys of Markdown's front matter, `lang` and `meta` elements of HTML; null = none",
    )
    reqa_split: str = setting(
        "80/20", "ReQA: the split of its queries into train and test (Chang et al. 2020 §4.1)", choices=REQA_SPLITS
    )
    distractors: str | None = setting(
        None, "another source, whose passages are added without its queries (Chang et al. 2020 Table 6)", location=True
    )
    max_distractors: int | None = _most("distractors, a seeded sample")
    dev_fraction: float = setting(
        0.1, "the share of train queries that becomes dev, if a source has no dev split", minimum=0, maximum=0.9
    )
    test_fraction: float = setting(
        0.0,
        "about the share of train queries that becomes test, if a source has neither dev nor test queries",
        minimum=0,
        maximum=0.9,
    )
    max_articles: int | None = _most("articles, a seeded sample; queries about others are dropped")
    max_train_queries: int | None = _most("train queries, a seeded sample")
    max_dev_queries: int | None = _most("dev queries, a seeded sample")
    max_test_queries: int | None = _most("test queries, a seeded sample")
    queries: str = setting(
        "auto",
        "where train queries come from: `source`, the labelled ones of the source; `pairs`, made from the corpus by "
        "the pair tasks, with held-out articles for dev and test; `auto`, pairs if the source has no train queries "
        "and no generated ones are given",
        choices=QUERIES,
    )
    pair_tasks: tuple[str, ...] | None = setting(
        None,
        "a list of the pair tasks ict, bfs and wlp, whose queries are sentences; null = those that the corpus supports",
        choices=TASKS,
    )
    pair_queries_per_article: int = setting(
        6,
        "at most this many pair queries per article, divided evenly among the tasks, at least one each; max_*_queries "
        "limit pair queries and labelled ones separately",
        minimum=1,
    )
    max_pair_queries: int | None = _most("pair queries in all splits together, a seeded sample", 50_000)
    pair_sentence_words: int = setting(6, "the fewest words of a sentence that becomes a pair query", minimum=1)
    pair_language: str = setting("en", "the language whose rules split sentences, by its ISO 639-1 code")
    heldout_dev_articles: float = setting(
        0.1, "with pairs or generated queries, the share of articles whose queries are dev", minimum=0, maximum=0.9
    )
    heldout_test_articles: float = setting(
        0.1, "with pairs or generated queries, the share of articles whose queries are test", minimum=0, maximum=0.9
    )
    dev_queries: str | None = setting(
        None,
        "a folder with labelled dev queries: queries.jsonl and qrels/dev.tsv, in BEIR layout, as `stillhouse label` "
        "writes them; where others are made from the corpus, the winner is chosen on these alone if there are 30, and "
        "fewer can overturn the choice of the made ones",
        location=True,
    )
    test_queries: str | None = setting(
        None, "a folder with labelled test queries: queries.jsonl and qrels/test.tsv, in BEIR layout", location=True
    )
    train_queries: str | None = setting(
        None,
        "a folder with more train queries: queries.jsonl and qrels/train.tsv, in BEIR layout, as `stillhouse queries "
        "export` writes them; any that repeats a dev or test query is left out",
        location=True,
    )
    seed: int = setting(42, "seed of every random choice", minimum=0)

    @property
    def max_queries(self) -> dict[str, int | None]:
        """At most how many queries of each split are kept."""
        return {"train": self.max_train_queries, "dev": self.max_dev_queries, "test": self.max_test_queries}

    def __post_init__(self) -> None:
        refuse_secret(self.repo or "", "repo")
        if not self.source.strip() and not self.repo:
            raise InputError("source is empty, which would mean the current folder; give a corpus, such as `sample`")
        if self.pair_tasks == ():
            raise InputError(f"pair_tasks is an empty list; leave it out, or name some of {', '.join(TASKS)}")
        if self.queries == "source" and self.pair_tasks is not None:
            raise InputError("pair_tasks is for `queries: pairs`; leave it out, or set `queries: pairs`")
        if self.revision and not self.repo:
            raise InputError("revision belongs to a DVC repository; set `repo`, or leave revision out")
        if self.split_tokens and 2 * self.split_overlap > self.split_tokens:
            raise InputError("split_overlap is more than half of split_tokens; lower it")


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Settings of `validate`: the thresholds."""

    max_rejected_fraction: float = setting(
        0.01, "the largest share of rejected rows, overall and of each kind (but links)", minimum=0, maximum=1
    )
    min_passages: int = setting(1, "at least this many passages", minimum=0)
    min_train_queries: int = setting(0, "at least this many train queries", minimum=0)
    min_dev_queries: int = setting(0, "at least this many dev queries", minimum=0)
    min_test_queries: int = setting(0, "at least this many test queries", minimum=0)
    max_passage_words: int | None = setting(
        None,
        "a passage of more words counts as truncated by the model; null = what the given encoder reads, else 110. 110 "
        "English words are about 144 tokens. White space separates words, and a character of a script without spaces "
        "(Chinese, Japanese, Thai) is one",
        minimum=1,
    )
    max_truncated_fraction: float = setting(
        1.0, "the largest share of truncated passages; 1 = only warn", minimum=0, maximum=1
    )
    max_duplicate_text_fraction: float = setting(
        0.1, "the largest share of passages that repeat another's title and text", minimum=0, maximum=1
    )
