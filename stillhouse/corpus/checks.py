"""The checks on every row of a corpus: shares and counts, each against a threshold of `validate`."""

from dataclasses import dataclass

from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.cleaning import WITHOUT_FAULT, normalise
from stillhouse.corpus.digest_numbers import DigestNumbers, digests_of
from stillhouse.corpus.schemas import SPLITS
from stillhouse.corpus.settings import Thresholds
from stillhouse.corpus.sources.rows import split_at
from stillhouse.corpus.store import Corpus, passage_text_blocks
from stillhouse.corpus.words import count_words

AT_LEAST = ">="
AT_MOST = "<="
WORDS_READ = 110
"""The most words of a passage that a model of unknown length reads completely: about 144 tokens of English."""


@dataclass(frozen=True)
class Check:
    """One value against one threshold. `remedy` says what to do if it fails."""

    name: str
    what: str
    value: float
    rule: str
    threshold: float
    remedy: str = ""

    @property
    def passed(self) -> bool:
        return self.value >= self.threshold if self.rule == AT_LEAST else self.value <= self.threshold

    def sentence(self) -> str:
        """The outcome as a sentence."""
        word = "at least" if self.rule == AT_LEAST else "at most"
        return f"{self.what} is {figure(self.value)} and must be {word} {figure(self.threshold)}" + (
            f"; {self.remedy}" if self.remedy and not self.passed else ""
        )


def figure(value: float) -> str:
    """A count with all its digits, a share with up to six."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


@dataclass(frozen=True)
class Truncation:
    """The share of passages of more than `tokens` tokens, which a model truncates.

    It is that of `counted` passages: of all, or of a random sample.
    """

    tokens: int
    share: float
    counted: int


@doing("checking the corpus")
def run_checks(corpus: Corpus, thresholds: Thresholds, truncation: Truncation | None = None) -> list[Check]:
    """Runs every check on every row, in the order of the report.

    Without a limit in words, the share of truncated passages is that of `truncation`, else of `WORDS_READ`.
    """
    words = thresholds.max_passage_words or WORDS_READ
    passages = _PassageCounts(corpus, words)
    by_tokens = truncation if thresholds.max_passage_words is None else None
    return [
        *_sizes(corpus, thresholds),
        *_rejects(corpus, thresholds),
        _truncated(passages, words, by_tokens, thresholds),
        _repeated(passages, thresholds),
        *_integrity(corpus),
    ]


class _PassageCounts:
    """Counts from one pass over the passages, which keeps only digests in memory."""

    def __init__(self, corpus: Corpus, most_words: int) -> None:
        self.count = self.long = 0
        self.texts = DigestNumbers()
        for texts in passage_text_blocks(corpus):
            self.count += len(texts)
            self.long += sum(count_words(text) > most_words for text in texts)
            self.texts.add(digests_of(texts))


def _sizes(corpus: Corpus, thresholds: Thresholds) -> list[Check]:
    checks = [Check("passages", "the number of passages", corpus.passage_count, AT_LEAST, thresholds.min_passages)]
    for split in SPLITS:
        minimum = getattr(thresholds, f"min_{split}_queries")
        count = int((corpus.queries["split"] == split).sum())
        checks.append(Check(f"{split}_queries", f"the number of {split} queries", count, AT_LEAST, minimum))
    return checks


def queries_of_origins(corpus: Corpus) -> dict[str, dict[str, int]]:
    """{origin: {split: queries}}, in alphabetical order of origins."""
    counted = corpus.queries.groupby("origin")["split"].value_counts()
    origins = sorted(corpus.queries["origin"].unique())
    return {origin: {split: int(counted.get((origin, split), 0)) for split in SPLITS} for origin in origins}


def _rejects(corpus: Corpus, thresholds: Thresholds) -> list[Check]:
    """The share of rows rejected for a fault: of all, unreadable lines included, and of each kind but links."""
    remedy = "rejected.parquet of the corpus lists each row and its reason: fix the source, or raise the threshold"
    taken = {"passage": corpus.passage_count, "query": len(corpus.queries) + len(corpus.unjudged)}
    taken |= {"qrel": len(corpus.qrels), "answer": len(corpus.answers)}
    kinds = corpus.rejected["kind"][~corpus.rejected["reason"].str.contains(WITHOUT_FAULT)]
    rejected = {kind: int((kinds == kind).sum()) for kind in (*taken, "line")}

    def share(*counted: str) -> float:
        out = sum(rejected[kind] for kind in counted)
        total = out + sum(taken[kind] for kind in counted if kind in taken)
        return out / total if total else 0.0

    limit = thresholds.max_rejected_fraction
    rows = ("passage", "query", "qrel", "answer", "line")
    checks = [Check("rejected_fraction", "the share of rejected rows", share(*rows), AT_MOST, limit, remedy)]
    for kind, plural in (("passage", "passages"), ("query", "queries"), ("qrel", "qrels"), ("answer", "answers")):
        name = f"rejected_{kind}_fraction"
        checks.append(Check(name, f"the share of rejected {plural}", share(kind), AT_MOST, limit, remedy))
    return checks


def refuse_remains(corpus: Corpus, split: str, most: float) -> None:
    """Raises `InputError` with the counts if too much of what a split is measured on was rejected.

    `most` limits the share of rejected passages, and the share of qrels that were rejected because the corpus lacks
    their passage or query. Beyond it, metrics would describe only the remaining part.
    """
    kinds, reasons, places = (corpus.rejected[name] for name in ("kind", "reason", "where"))
    elsewhere = ~places.map(split_at).isin(["", split])
    faulty = ~reasons.str.contains(WITHOUT_FAULT)
    out = {
        "passages": ((kinds == "passage") & faulty, corpus.passage_count),
        "qrels": ((kinds == "qrel") & reasons.str.startswith("points to no") & ~elsewhere, len(corpus.qrels_of(split))),
    }
    for what, (counted, taken) in out.items():
        rejected = int(counted.sum())
        if rejected > most * (rejected + taken):
            named = reasons[counted].value_counts()
            raise InputError(
                f"{rejected:,} of {rejected + taken:,} {what} were rejected ({named.index[0]}), more than {most:.1%}: "
                f"metrics would describe only the rest; fix the rows listed in {corpus.folder / 'rejected.parquet'}"
            )


def _truncated(passages: _PassageCounts, words: int, by_tokens: Truncation | None, thresholds: Thresholds) -> Check:
    if by_tokens is None:
        value = passages.long / max(passages.count, 1)
        what = f"the share of passages of more than {words} words (too long for the model)"
        remedy = "raise the model's passage length and max_passage_words"
    else:
        value = by_tokens.share
        drawn = f", counted in {by_tokens.counted:,} random ones" if by_tokens.counted < passages.count else ""
        what = f"the share of passages of more than {by_tokens.tokens} tokens (which the model truncates{drawn})"
        remedy = "raise passage_length of the model"
    return Check(
        "truncated_fraction",
        what,
        value,
        AT_MOST,
        thresholds.max_truncated_fraction,
        f"split the source into shorter passages, or {remedy}",
    )


def _repeated(passages: _PassageCounts, thresholds: Thresholds) -> Check:
    return Check(
        "duplicate_text_fraction",
        "the share of passages that repeat the text of another",
        (passages.count - len(passages.texts)) / max(passages.count, 1),
        AT_MOST,
        thresholds.max_duplicate_text_fraction,
        "remove the duplicates from the source, as finding one counts as wrong if the other is the relevant one, or "
        "raise max_duplicate_text_fraction",
    )


def _integrity(corpus: Corpus) -> list[Check]:
    """What `ingest` guarantees across tables; a value above 0 means that something else wrote them."""
    queries, qrels = corpus.queries, corpus.qrels
    texts = queries["text"].map(normalise)
    counts = {
        "qrels_without_passage": ((corpus.passage_ids.find(qrels["passage_id"]) < 0).sum(), "qrels without a passage"),
        "qrels_without_query": ((~qrels["query_id"].isin(queries["query_id"])).sum(), "qrels without a query"),
        "texts_in_two_splits": ((queries["split"].groupby(texts).nunique() > 1).sum(), "query texts in two splits"),
    }
    remedy = "run `stillhouse ingest` again"
    return [
        Check(name, f"the number of {what}", int(value), AT_MOST, 0, remedy) for name, (value, what) in counts.items()
    ]
