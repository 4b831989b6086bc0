"""Pair queries, compared with plain loops that list all allowed ones of hand-made articles."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from stillhouse.core.errors import InputError
from stillhouse.corpus.articles import lay_out
from stillhouse.corpus.cleaning import clean
from stillhouse.corpus.pair_queries import PairQueries, make_pair_queries
from stillhouse.corpus.schemas import SPLITS
from stillhouse.corpus.sentences import query_sentences
from stillhouse.corpus.settings import TASKS, IngestSettings
from stillhouse.corpus.sources.rows import Passage
from stillhouse.corpus.store import Corpus, write_tables
from stillhouse.corpus.taken_passages import TakenPassages
from stillhouse.evaluation.relevance import not_negatives

Articles = dict[str, list[tuple[str, list[str]]]]
"""{article: [(section, the sentences of a passage)]}."""

BOILERPLATE = "See the front page for all the terms."
SHORT = "Too short."
CHOICES = IngestSettings(heldout_dev_articles=0, heldout_test_articles=0, pair_sentence_words=5, seed=1)


def said(article: str, passage: int, number: int) -> str:
    return f"In {article} the passage {passage} states its fact {number}."


def articles_of(sizes: dict[str, list[int]]) -> Articles:
    """Return articles with `sizes` passages per section; each has two facts, a short sentence and boilerplate."""
    made: Articles = {}
    for article, sections in sizes.items():
        headings = [f"s{n}" for n, size in enumerate(sections) for _ in range(size)]
        made[article] = [
            (heading, [said(article, p, 0), SHORT, said(article, p, 1), BOILERPLATE])
            for p, heading in enumerate(headings)
        ]
    return made


SMALL = articles_of({"ant": [1, 2], "bee": [2], "cat": [1, 1], "dog": [1]})
LINKS = [("ant", "bee"), ("cat", "bee"), ("bee", "cat"), ("ant", "dog")]


def rows_of(articles: Articles) -> list[Passage]:
    """Return the passages in reverse order, so that the code cannot rely on their order."""
    rows = [
        Passage(f"{article}#{p}", "", " ".join(sentences), article, section, p, "")
        for article, passages in articles.items()
        for p, (section, sentences) in enumerate(passages)
    ]
    return rows[::-1]


def taken_of(articles: Articles) -> TakenPassages:
    return clean(rows_of(articles)).passages


def allowed(articles: Articles, links: list[tuple[str, str]]) -> dict[str, set[tuple[str, str, str]]]:
    """Return {task: {(text, the passage it was taken from, a relevant passage)}}, for any split."""
    found: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for article, passages in articles.items():
        opening = next((p for p, (section, _) in enumerate(passages) if section != passages[0][0]), len(passages))
        for p, (section, sentences) in enumerate(passages):
            beside = [n for n in (p + 1, p - 1) if 0 <= n < len(passages)]
            beside.sort(key=lambda n: passages[n][0] != section)
            for text in sentences:
                if text in (SHORT, BOILERPLATE):
                    continue
                own = f"{article}#{p}"
                if beside:
                    found["ict"].add((text, own, f"{article}#{beside[0]}"))
                if p >= opening:
                    continue
                found["bfs"] |= {(text, own, f"{article}#{n}") for n in range(len(passages)) if n != p}
                for source, target in links:
                    if target == article:
                        found["wlp"] |= {(text, own, f"{source}#{n}") for n in range(len(articles[source]))}
    return found


def made_of(made: PairQueries) -> dict[str, set[tuple[str, str, str]]]:
    found: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
    for query in made.queries:
        found[query.task].add((query.text, query.taken_from, query.positive))
    return found


@pytest.mark.parametrize("task", TASKS)
def test_over_many_seeds_a_task_makes_every_allowed_query_and_no_other(task: str) -> None:
    union: set[tuple[str, str, str]] = set()
    for seed in range(150):
        choices = replace(CHOICES, pair_tasks=(task,), seed=seed)
        union |= made_of(make_pair_queries(taken_of(SMALL), LINKS, choices))[task]
    assert union == allowed(SMALL, LINKS)[task]


def test_a_sentence_is_used_once_and_never_stands_in_its_relevant_passage() -> None:
    rows = rows_of(SMALL)
    made = make_pair_queries(clean(rows).passages, LINKS, replace(CHOICES, pair_queries_per_article=30))
    texts = {row.id: row.text for row in rows}
    assert made.tasks == TASKS and not made.verbatim
    assert max(Counter(query.text for query in made.queries).values()) == 1
    assert len({query.id for query in made.queries}) == len(made.queries)
    for query in made.queries:
        assert query.text in texts[query.taken_from] and query.text not in texts[query.positive]
        number = [said(query.taken_from[:3], int(query.taken_from[4:]), n) for n in (0, 1)].index(query.text)
        assert query.id == f"{query.task}:{query.taken_from}:{2 * number}"
    # The limit is so high that every sentence is used if its passage has a neighbour, or its article a link to it.
    assert {query.text for query in made.queries} == {
        text for task in allowed(SMALL, LINKS).values() for text, *_ in task
    }


LARGE = articles_of({f"a{n:02d}": [2, n % 4] for n in range(40)})
LARGE_LINKS = [(f"a{n:02d}", f"a{m:02d}") for n in range(40) for m in range(40) if n != m and (n * m) % 7 == 1]


def test_the_articles_of_the_splits_are_disjoint_with_both_ends() -> None:
    made = make_pair_queries(
        taken_of(LARGE),
        LARGE_LINKS,
        replace(CHOICES, heldout_dev_articles=0.25, heldout_test_articles=0.2, pair_queries_per_article=6),
    )
    assert made.articles == {"train": 22, "dev": 10, "test": 8}
    articles = defaultdict(set)
    for query in made.queries:
        articles[query.split] |= {query.taken_from.split("#")[0], query.positive.split("#")[0]}
    assert all(articles[split] for split in SPLITS)
    assert len(set.union(*articles.values())) == sum(map(len, articles.values()))
    assert made.counts()["dev"]["wlp"] > 0 and set(made.counts()["test"]) == set(TASKS)
    for found, may in ((made_of(made)[task], allowed(LARGE, LARGE_LINKS)[task]) for task in TASKS):
        assert found <= may
    per_article = Counter((query.task, query.taken_from.split("#")[0]) for query in made.queries)
    assert max(per_article.values()) == 2


@pytest.mark.parametrize("sizes", [{"manual": [8, 5]}, {"a": [30], "b": [3]}])
def test_runs_of_passages_are_held_out_of_one_or_two_documents(sizes: dict[str, list[int]]) -> None:
    articles, choices = articles_of(sizes), replace(CHOICES, heldout_dev_articles=0.2, heldout_test_articles=0.1)
    count = sum(map(sum, sizes.values()))
    runs = {article: len(passages) // max(2, count // 10) for article, passages in articles.items()}
    all_runs = sum(runs.values())
    made = make_pair_queries(taken_of(articles), [("a", "b")] * ("b" in sizes), choices)
    held_out = {"dev": round(0.2 * all_runs), "test": round(0.1 * all_runs)}
    assert made.articles == {"train": all_runs - sum(held_out.values())} | held_out
    splits = defaultdict(set)
    for query in made.queries:
        for passage in (query.taken_from, query.positive):
            article, number = passage.split("#")
            splits[article, int(number) * runs[article] // len(articles[article])].add(query.split)
    assert made.tasks == ("ict",), "of another passage of the article, which may be any here, nothing is wrong"
    with pytest.raises(InputError, match="only one or two articles"):
        make_pair_queries(taken_of(articles), [], replace(choices, pair_tasks=("bfs",)))
    assert len(splits) == all_runs > 5 and all(len(of) == 1 for of in splits.values())
    assert set.union(*splits.values()) == set(SPLITS)


def test_the_seed_decides_and_limits_hold_split_by_split() -> None:
    choices = replace(CHOICES, heldout_dev_articles=0.2, heldout_test_articles=0.2)
    whole = make_pair_queries(taken_of(LARGE), LARGE_LINKS, choices)
    assert whole == make_pair_queries(taken_of(LARGE), LARGE_LINKS, choices)
    assert whole.queries != make_pair_queries(taken_of(LARGE), LARGE_LINKS, replace(choices, seed=2)).queries
    less = make_pair_queries(taken_of(LARGE), LARGE_LINKS, replace(choices, max_train_queries=20, max_dev_queries=3))
    sizes = Counter(query.split for query in less.queries)
    assert (sizes["train"], sizes["dev"]) == (20, 3)
    assert sizes["test"] == Counter(query.split for query in whole.queries)["test"] > 3
    assert [query for query in whole.queries if query in set(less.queries)] == less.queries


def test_link_prediction_asks_from_the_article_that_is_linked_to() -> None:
    articles: Articles = {"page": [("", [said("page", 0, 0)])], "linker": [("", [said("linker", 0, 0)])]}
    [query] = make_pair_queries(taken_of(articles), [("linker", "page")], replace(CHOICES, pair_tasks=("wlp",))).queries
    assert (query.taken_from, query.positive) == ("page#0", "linker#0")


def test_without_neighbours_a_sentence_asks_for_its_own_passage() -> None:
    articles = articles_of({name: [1] for name in "abcd"})
    made = make_pair_queries(taken_of(articles), [], CHOICES)
    assert made.verbatim and made.tasks == ("ict",) and len(made.queries) == 8
    assert all(query.taken_from == query.positive for query in made.queries)


def test_passages_without_an_article_are_not_one_article() -> None:
    rows = [row._replace(article_id="") if isinstance(row, Passage) else row for row in rows_of(SMALL)]
    made = make_pair_queries(clean(rows).passages, [], CHOICES)
    assert made.verbatim and all(query.taken_from == query.positive for query in made.queries)


def test_a_labelled_text_is_not_made_again() -> None:
    taken = [said("ant", 0, 0).upper(), said("bee", 1, 1)]
    made = make_pair_queries(taken_of(SMALL), LINKS, replace(CHOICES, pair_queries_per_article=30), taken)
    texts = {query.text for query in made.queries}
    assert said("ant", 0, 0) not in texts and said("bee", 1, 1) not in texts and said("ant", 0, 1) in texts


@pytest.mark.parametrize(
    ("articles", "links", "changes", "message"),
    [
        (SMALL, [], {"pair_tasks": ("ict", "wlp")}, "wlp is impossible in this corpus, which has no links"),
        (articles_of({"a": [1], "b": [1]}), [], {"pair_tasks": ("bfs",)}, "bfs is impossible .* no article of several"),
        (SMALL, LINKS, {"pair_tasks": ()}, "pair_tasks is an empty list"),
        (SMALL, LINKS, {"pair_sentence_words": 40}, "lower pair_sentence_words"),
        (SMALL, LINKS, {"pair_sentence_words": 40, "pair_tasks": ("bfs",)}, "the corpus gives no bfs query"),
        (SMALL, LINKS, {"heldout_dev_articles": 0.5, "heldout_test_articles": 0.5}, "4 articles are too few"),
        ({"a": [("", [SHORT])]}, [], {"heldout_dev_articles": 0.1}, "1 article is too few"),
        ({}, [], {}, "0 articles are too few"),
    ],
)
def test_impossible_requests_are_refused_with_a_remedy(
    articles: Articles, links: list[tuple[str, str]], changes: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make_pair_queries(taken_of(articles), links, replace(CHOICES, **changes))


def test_sentences_keep_their_positions_and_duplicates_are_left_out() -> None:
    texts = ["One two three four. Five six.\nSeven  eight nine ten!", "one TWO three four. A b c d e.", "", "x " * 80]
    found = query_sentences(texts, min_words=4, language="en")
    cut = [texts[row][begin:end] for row, (begin, end) in zip(found.rows_S, found.spans_S2)]
    assert cut == ["Seven  eight nine ten!", "A b c d e."]
    assert found.numbers_S.tolist() == [2, 1] and found.rows_S.tolist() == [0, 1]
    assert len(query_sentences([], 4, "en").rows_S) == 0


def test_layout_equals_a_slow_look_up() -> None:
    rows = rows_of(SMALL)
    taken = clean(rows).passages
    layout = lay_out(taken.column("article_id"), taken.column("section"), taken.column("position"), LINKS)
    names = sorted(SMALL)
    assert [names[a] for a in layout.article_P] == [row.article_id for row in rows]
    for n, name in enumerate(names):
        own = layout.passages_P[layout.offsets[n] : layout.offsets[n + 1]]
        assert [rows[i].id for i in own] == [f"{name}#{p}" for p in range(len(SMALL[name]))]
    assert [(names[a], names[b]) for a, b in layout.links_L2] == sorted(LINKS)
    assert {rows[i].id for i in range(len(rows)) if layout.first_section_P[i]} == {
        "ant#0", "bee#0", "bee#1", "cat#0", "dog#0",
    }  # fmt: skip
    beside = {rows[i].id: rows[n].id if n >= 0 else "" for i, n in enumerate(layout.neighbour_P)}
    assert beside == {
        "ant#0": "ant#1", "ant#1": "ant#2", "ant#2": "ant#1", "bee#0": "bee#1", "bee#1": "bee#0",
        "cat#0": "cat#1", "cat#1": "cat#0", "dog#0": "",
    }  # fmt: skip


def test_passages_that_are_not_negatives_of_a_made_query(tmp_path: Path) -> None:
    rows = rows_of(LARGE)
    made = make_pair_queries(clean(rows).passages, LARGE_LINKS, CHOICES).queries
    ids = [query.id for query in made]
    write_tables(
        tmp_path,
        {
            "passages": {
                "passage_id": [row.id for row in rows],
                "title": [""] * len(rows),
                "text": [row.text for row in rows],
                "article_id": [row.article_id for row in rows],
                "section": [row.section for row in rows],
                "position": [row.position for row in rows],
            },
            "queries": {
                "query_id": [*ids, "real"],
                "text": [*(query.text for query in made), "a question"],
                "split": [*(query.split for query in made), "test"],
                "origin": [*(query.task for query in made), "source"],
                "taken_from": [*(query.taken_from for query in made), ""],
            },
            "qrels": {
                "query_id": [*ids, "real"],
                "passage_id": [*(query.positive for query in made), "a00#0"],
                "relevance": [1] * (len(ids) + 1),
                "split": [*(query.split for query in made), "test"],
            },
        },
    )
    table = not_negatives(Corpus.open(tmp_path))
    found = {(id, rows[row].id) for id, row in zip(table["query_id"], table["row"])}
    expected = set()
    for query in made:
        expected.add((query.id, query.taken_from))
        if query.task != "ict":
            ends = {query.taken_from.split("#")[0], query.positive.split("#")[0]}
            expected |= {(query.id, row.id) for row in rows if row.article_id in ends}
    assert found == expected and len(table) == len(expected)
    assert {query.task for query in made} == set(TASKS)


UNSPACED = {
    "zh": (range(0x4E00, 0x9FA0), "。"),
    "ja": (range(0x3042, 0x3094), "。"),
    "th": (range(0x0E01, 0x0E2E), " "),  # a space and no mark after a sentence
}


@pytest.mark.parametrize("language", UNSPACED)
def test_queries_are_made_in_scripts_without_spaces(language: str) -> None:
    letters, end = UNSPACED[language]
    chance = random.Random(1)
    sentences = ["".join(map(chr, chance.choices(letters, k=14))) + end for _ in range(24)]
    articles = {name: [("s", sentences[4 * n : 4 * n + 2]), ("s", sentences[4 * n + 2 : 4 * n + 4])]
                for n, name in enumerate("abcdef")}  # fmt: skip
    made = make_pair_queries(taken_of(articles), [], replace(CHOICES, pair_tasks=("ict",)))
    texts = {row.id: " ".join(row.text.split()) for row in rows_of(articles)}
    assert made.queries
    assert all(query.text in texts[query.taken_from] for query in made.queries)
    assert {query.text for query in made.queries} <= {text.strip() for text in sentences}
