"""Pairs drawn from a hand-made corpus, compared with a list of all allowed pairs and their probabilities."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chisquare
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from stillhouse.core.errors import InputError
from stillhouse.pretraining.pairs.settings import TASK_NAMES, PairConfig
from stillhouse.pretraining.pairs.structure import article_structure
from stillhouse.pretraining.pairs.task import PairMaker, open_pairs
from stillhouse.pretraining.token_files import write_tokens
from stillhouse.pretraining.tokens import SpecialTokens, TokenCache

# Article, section, title, sentences. Passage 5 has one sentence, 6 no known word, 12 no article.
PASSAGES = [
    ("rye", "", "Rye", ["Rye grows tall.", "It feeds stills."]),
    ("rye", "", "Rye", ["Rye is grain."]),
    ("rye", "Malt", "Rye", ["Malt is wet.", "Malt is warm.", "Malt sprouts."]),
    ("rye", "", "Rye", ["A late part."]),
    ("still", "", "Still", ["A still is copper.", "It boils."]),
    ("still", "Heads", "Still", ["Heads come first."]),
    ("still", "Heads", "Still", ["Qwx zvt!", "Zvt!"]),
    ("cask", "", "Cask", ["Casks are oak.", "They leak.", "They age."]),
    ("cask", "Size", "Cask", ["Size is large.", "Or small."]),
    ("oak", "", "Oak", ["Oak is wood."]),
    ("peat", "", "Peat", ["Peat is wet.", "It burns."]),
    ("peat", "Smoke", "Peat", ["Smoke is blue.", "It is warm."]),
    ("", "", "", ["Alone it stands.", "It is small."]),
]
LINKS = [("rye", "still"), ("cask", "still"), ("oak", "cask"), ("cask", "oak"), ("peat", "rye"), ("rye", "rye"),
         ("still", "nowhere"), ("still", "rye"), ("peat", "cask"), ("cask", "peat")]  # fmt: skip
UNKNOWN = {"qwx", "zvt", "!"}
CONFIG = PairConfig(query_length=64, passage_length=64)
SEED = 19
"""Holds out two articles that link to each other, and leaves two such pairs."""
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def words(sentence: str) -> tuple[str, ...]:
    known = sentence.lower().replace(".", " .").replace("!", " !").split()
    return tuple("[UNK]" if word in UNKNOWN else word for word in known)


VOCABULARY = SPECIALS + sorted(
    {word for *_, title, sentences in PASSAGES for text in [title, *sentences] for word in words(text)} - set(SPECIALS)
)


def frame() -> tuple[pd.DataFrame, pd.DataFrame]:
    positions: Counter[str] = Counter()
    rows = []
    for article, section, title, sentences in PASSAGES:
        rows.append((title, " ".join(sentences), article, section, positions[article]))
        positions[article] += 1
    columns = ["title", "text", "article_id", "section", "position"]
    return pd.DataFrame(rows, columns=columns), pd.DataFrame(LINKS, columns=["source", "target"])


def write(folder: Path, passages: pd.DataFrame, links: pd.DataFrame, titles: str = "space") -> TokenCache:
    inner = Tokenizer(models.WordPiece({word: i for i, word in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    write_tokens(folder, [passages.iloc[:5], passages.iloc[5:]], tokenizer, 144, "en", titles)
    for name, array in zip(("article", "lead", "links"), article_structure([passages], links)):
        np.save(folder / f"{name}.npy", array)
    return TokenCache.open(folder, SpecialTokens.of(tokenizer))


@pytest.fixture
def cache(tmp_path: Path) -> TokenCache:
    return write(tmp_path, *frame())


def make(
    cache: TokenCache, tasks: str, config: PairConfig = CONFIG, seed: int = 0, fraction: float = 0.34
) -> PairMaker:
    return open_pairs(
        cache, tasks.split("+"), config, heldout_fraction=fraction, max_eval_samples=100, seed=seed,
        device=torch.device("cpu"),
    )  # fmt: skip


Pair = tuple[int, tuple[str, ...], tuple[str, ...]]


def every_pair(task: str, rows: set[int]) -> dict[Pair, float]:
    """Every (target row, query, passage) of one task over `rows` and its probability, from the texts alone."""
    ordinary = {r: [i for i, s in enumerate(PASSAGES[r][3]) if set(words(s)) != {"[UNK]"}] for r in sorted(rows)}
    usable = [r for r in ordinary if ordinary[r]]

    def lead(row: int) -> bool:
        article = PASSAGES[row][0]
        before = [p for p in PASSAGES[: row + 1] if p[0] == article]
        return article != "" and all(p[1] == before[0][1] for p in before)

    def targets(row: int) -> list[tuple[int, float]]:
        article = PASSAGES[row][0]
        if task == "ict":
            return [(row, 1.0)] if len(ordinary[row]) >= 2 else []
        if not lead(row):
            return []
        if task == "bfs":
            others = [r for r in usable if r != row and PASSAGES[r][0] == article]
            return [(r, 1 / len(others)) for r in others]
        linking = sorted({a for a, b in LINKS if b == article and a != article} & {PASSAGES[r][0] for r in usable})
        inside = {a: [r for r in usable if PASSAGES[r][0] == a] for a in linking}
        return [(r, 1 / len(linking) / len(inside[a])) for a in linking for r in inside[a]]

    sources = [row for row in usable if targets(row)]
    pairs: Counter[Pair] = Counter()
    for row in sources:
        for target, share in targets(row):
            for i in ordinary[row]:
                kept = [s for j, s in enumerate(PASSAGES[target][3]) if task != "ict" or j != i]
                title = words(PASSAGES[target][2])
                text = sum(map(words, kept), ())
                passage = (*title, "[SEP]", *text) if title else text
                pairs[(target, words(PASSAGES[row][3][i]), passage)] += share / len(sources) / len(ordinary[row])
    return dict(pairs)


def spelled(ids_L: torch.Tensor, attention_L: torch.Tensor) -> tuple[str, ...]:
    tokens = [VOCABULARY[i] for i in ids_L[attention_L].tolist()]
    assert tokens[0] == "[CLS]" and tokens[-1] == "[SEP]"
    assert (ids_L[~attention_L] == 0).all()
    return tuple(tokens[1:-1])


def sides(maker: PairMaker) -> dict[str, tuple[np.ndarray, set[int]]]:
    held = set(np.flatnonzero(maker.heldout_N).tolist())
    return {"training": (maker.training, set(range(len(PASSAGES))) - held), "heldout": (maker.heldout, held)}


def drawn(maker: PairMaker, rows: np.ndarray, count: int) -> Counter[tuple[int, Pair]]:
    rng = np.random.default_rng(5)
    batch = maker(rng.choice(rows, size=count), rng)
    texts = zip(
        batch.task_B.tolist(),
        batch.target_B.tolist(),
        map(spelled, batch.query_ids_BL, batch.query_attention_BL),
        map(spelled, batch.passage_ids_BL, batch.passage_attention_BL),
    )
    return Counter((task, (target, query, passage)) for task, target, query, passage in texts)


@pytest.mark.parametrize("side", ["training", "heldout"])
@pytest.mark.parametrize("tasks", ["ict", "bfs", "wlp", "ict+bfs+wlp"])
def test_pairs_are_those_of_the_texts_with_their_probabilities(cache: TokenCache, tasks: str, side: str) -> None:
    names = tasks.split("+")
    maker = make(cache, tasks, fraction=0.4, seed=SEED)
    rows, passages = sides(maker)[side]
    possible = {name: every_pair(name, passages) for name in names}
    assert all(abs(sum(pairs.values()) - 1) < 1e-9 for pairs in possible.values())
    expected = {
        (TASK_NAMES.index(name), pair): share / len(names)
        for name, pairs in possible.items()
        for pair, share in pairs.items()
    }
    count = 20_000
    found = drawn(maker, rows, count)
    assert found.keys() == expected.keys()
    observed = [found[pair] for pair in expected]
    assert chisquare(observed, [count * share for share in expected.values()]).pvalue > 1e-4
    # The log of a target's probability is exact.
    by_target: Counter[int] = Counter()
    for (_, (target, _, _)), share in expected.items():
        by_target[target] += share  # type: ignore[assignment]
    inside = sorted(passages)
    np.testing.assert_allclose(np.exp(maker.log_q_N[inside]), [by_target[row] for row in inside], atol=1e-12)
    sources = {row for row in inside if row in rows}
    assert sources == set(rows.tolist())


def test_no_article_is_on_both_sides(cache: TokenCache) -> None:
    for seed in range(10):
        maker = make(cache, "ict+bfs", seed=seed)
        articles = []
        for rows in (maker.training, maker.heldout):
            batch = maker(np.repeat(rows, 30), np.random.default_rng(seed))
            rows_seen = np.concatenate([batch.source_B.numpy(), batch.target_B.numpy()])
            articles.append({PASSAGES[row][0] or f"alone {row}" for row in rows_seen})
        assert not articles[0] & articles[1]
        again = make(cache, "ict+bfs", seed=seed)
        assert again.heldout.tolist() == maker.heldout.tolist() and len(maker.heldout)
    assert make(cache, "ict+bfs", seed=0).heldout.tolist() != make(cache, "ict+bfs", seed=2).heldout.tolist()


def test_a_batch_is_a_function_of_rows_and_seed(cache: TokenCache) -> None:
    maker = make(cache, "ict+bfs+wlp", seed=SEED)
    rows = maker.training[[0, 1, 2, 0]]
    one, two, other = (maker(rows, np.random.default_rng([seed, 3])) for seed in (1, 1, 2))
    for name, value in vars(one).items():
        assert torch.equal(value, getattr(two, name)), name
    assert any(not torch.equal(value, getattr(other, name)) for name, value in vars(one).items())


def test_ict_keeps_the_sentence_in_its_share_of_the_pairs(cache: TokenCache) -> None:
    maker = make(cache, "ict", replace(CONFIG, ict_keep=0.25, pair_title="none"))
    batch = maker(np.random.default_rng(1).choice(maker.training, 4000), np.random.default_rng(0))
    whole = [sum(map(words, PASSAGES[row][3]), ()) for row in batch.target_B.tolist()]
    kept = [spelled(*pair) == text for *pair, text in zip(batch.passage_ids_BL, batch.passage_attention_BL, whole)]
    assert abs(np.mean(kept) - 0.25) < 0.03


@pytest.mark.parametrize("title", ["sep", "space", "none"])
@pytest.mark.parametrize("titles", ["space", "sep"])
@pytest.mark.parametrize(("query_length", "passage_length"), [(64, 64), (4, 7), (3, 3), (3, 4), (5, 5)])
def test_texts_are_cut_and_joined(
    tmp_path: Path, title: str, titles: str, query_length: int, passage_length: int
) -> None:
    cache = write(tmp_path, *frame(), titles)
    config = replace(CONFIG, pair_title=title, query_length=query_length, passage_length=passage_length)
    maker = make(cache, "bfs", config)
    batch = maker(np.repeat(maker.training, 8), np.random.default_rng(0))
    # With `titles: sep` the corpus's tokens contain the separator: `space` reads it, and `sep` adds no second one.
    between = {"sep": ("[SEP]",), "space": ("[SEP]",) * (titles == "sep"), "none": ()}[title]
    for i, (source, target) in enumerate(zip(batch.source_B.tolist(), batch.target_B.tolist())):
        _, _, name, sentences = PASSAGES[target]
        head = () if title == "none" else (*words(name), *between)
        whole = head + sum(map(words, sentences), ())
        assert spelled(batch.passage_ids_BL[i], batch.passage_attention_BL[i]) == whole[: passage_length - 2]
        queries = [words(sentence)[: query_length - 2] for sentence in PASSAGES[source][3]]
        assert spelled(batch.query_ids_BL[i], batch.query_attention_BL[i]) in queries
    assert batch.query_ids_BL.shape[1] <= query_length and batch.passage_ids_BL.shape[1] <= passage_length


def test_candidates_that_share_a_target_are_not_negatives(cache: TokenCache) -> None:
    maker = make(cache, "ict+bfs+wlp", seed=SEED)
    batch = maker(np.repeat(maker.training, 3), np.random.default_rng(0))
    source, target = batch.source_B.tolist(), batch.target_B.tolist()
    expected = [
        [target[i] == target[j] or source[i] == target[j] for j in range(len(batch))] for i in range(len(batch))
    ]
    assert batch.same_target().tolist() == expected
    assert np.diag(expected).all() and np.sum(expected) > len(batch)


def without(passages: pd.DataFrame, links: pd.DataFrame, lacking: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    if lacking == "articles":
        return passages.assign(article_id=[f"a{i}" for i in range(len(passages))]), links.iloc[:0]
    if lacking == "sections":
        return passages.assign(section=""), links
    if lacking == "sentences":
        return passages.assign(text="Rye is grain."), links
    if lacking == "words":
        return passages.assign(text="qwx"), links
    return passages, links.iloc[:0]


REFUSED = [
    ("bfs", "articles", "bfs has no pair.*it needs articles of several passages"),
    ("ict+bfs", "articles", "an objective without bfs"),
    ("bfs", "sections", "it needs articles of several passages with headings"),
    ("wlp", "links", "it needs links between articles .`stillhouse ingest`"),
    ("ict", "sentences", "ict has no pair.*it needs passages of two sentences"),
    ("ict", "words", "number of articles with sentences is 0"),
]


@pytest.mark.parametrize(("tasks", "lacking", "message"), REFUSED)
def test_a_corpus_that_lacks_what_a_task_needs_is_refused(
    tmp_path: Path, tasks: str, lacking: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make(write(tmp_path, *without(*frame(), lacking)), tasks)
