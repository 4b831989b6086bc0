"""Pieces of long passages: those of a slow splitter, whole by the tokenizer's own count, and the same from parts."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from stillhouse.corpus.cleaning_parts import Several
from stillhouse.corpus.ingestion import ingest_source
from stillhouse.corpus.settings import IngestSettings
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.pieces import BY, Splitting, with_pieces
from stillhouse.corpus.sources.rows import Passage
from stillhouse.corpus.store import Corpus
from stillhouse.models.token_lengths import token_counter

WORDS = "red green blue bird fish tree the a one two three".split()  # noqa: SIM905
ARTICLES = {
    "a": "# Birds\n\nOne bird sings. Two birds sing.\n\n```\ncode "
    + "red " * 60
    + "\n```\n\n"
    + "The bird grows. " * 30,
    "b": "A fish.\n\n" + "A fish swims in the sea. " * 40,
}


def passage(text: str, title: str = "") -> Passage:
    return Passage("d", title, text, "", "", 0, "f:1", {"page": 3})


def words(text: str) -> int:
    return len(text.split()) + 2


@pytest.mark.parametrize("seed", range(5))
def test_paragraphs_are_packed_as_by_a_slow_splitter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    paragraphs = [" ".join(rng.choice(WORDS, rng.integers(1, 12))) for _ in range(40)]
    expected: list[str] = []
    for paragraph in paragraphs:
        longer = f"{expected[-1]}\n\n{paragraph}" if expected else ""
        expected[-1:] = [longer] if longer and words(longer) <= 20 else [*expected[-1:], paragraph]
    found = Splitting(20, count=words).pieces(passage("\n\n".join(paragraphs)))
    assert [piece.text for piece in found] == expected


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("overlap", [0, 6])
@pytest.mark.parametrize("seed", range(3))
def test_pieces_are_stretches_of_the_text_that_the_model_reads_whole(
    by: str, overlap: int, seed: int, tiny_model: Path
) -> None:
    rng = np.random.default_rng(seed)
    ends = [". ", ".\n", ".\n\n", "。", " ", "\n# One bird\n"]
    text = "".join(f"{' '.join(rng.choice(WORDS, rng.integers(1, 30)))}{rng.choice(ends)}" for _ in range(60))
    tokenizer = Tokenizer.from_file(str(tiny_model / "tokenizer.json"))
    found = Splitting(24, overlap, by, count=token_counter(tiny_model)).pieces(passage(text, "the tree"))
    assert [piece.id for piece in found] == [f"d#{number}" for number in range(1, len(found) + 1)]
    covered, end = np.zeros(len(text), dtype=np.bool_), 0
    for piece in found:
        fields: Any = piece.fields
        assert text[fields["begin"] : fields["end"]] == piece.text and fields["page"] == 3 and piece.article_id == "d"
        assert len(tokenizer.encode(f"the tree {piece.text}").ids) <= 24
        repeated = text[fields["begin"] : end] if fields["begin"] < end else ""
        assert len(tokenizer.encode(repeated, add_special_tokens=False).ids) <= overlap
        end = fields["end"]
        covered[fields["begin"] : end] = True
        assert by != "heading" or piece.section == ("One bird" if "# One bird" in text[:end] else "")
    assert all(there or character.isspace() for there, character in zip(covered, text))
    if overlap and by != "heading":
        assert covered.sum() < sum(len(piece.text) for piece in found)


def test_sentences_stay_whole_across_line_breaks() -> None:
    text = "One two\nthree. " * 20
    assert {piece.text[-6:] for piece in Splitting(16, by="sentence", count=words).pieces(passage(text))} == {"three."}


@pytest.mark.usefixtures("paragraphs_apart")
def test_processes_give_the_same_pieces_and_their_kinds(tmp_path: Path, tiny_model: Path) -> None:
    for name, text in ARTICLES.items():
        (tmp_path / "articles").mkdir(exist_ok=True)
        (tmp_path / "articles" / f"{name}.md").write_text(text)
    tables = []
    with ProcessPoolExecutor(2) as pool:
        for several in (None, Several(pool.map, tmp_path / "work", part_bytes=1)):
            folder = tmp_path / f"corpus-{len(tables)}"
            folder.mkdir()
            source = open_source(str(tmp_path / "articles"))
            source = with_pieces(source, Splitting(40, count=token_counter(tiny_model)))
            ingest_source(source, IngestSettings(queries="source", dev_fraction=0), folder, several=several)
            tables.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert tables[0] == tables[1]
    corpus = Corpus.open(folder)
    ids = corpus.passages["passage_id"].tolist()
    assert ids[:4] == ["a#1", "a#2#1", "a#2#2", "a#3#1"]
    assert set(corpus.not_prose) == {"a#2#1", "a#2#2"}
    assert corpus.passages["position"].tolist()[:4] == [0, 1, 1, 2], "pieces keep their passage's"
    begins = pq.read_table(folder / "fields.parquet")["begin"].to_pylist()
    assert [begin is None for begin in begins] == [id.count("#") == 1 for id in ids]


@pytest.mark.parametrize("article", ["", "a", "b"])
@pytest.mark.parametrize(("answer", "passages"), [("", ["a#1#2"]), ("tree", ["a#1#3"]), ("none", ["a#1#2"])])
def test_a_qrel_of_a_document_is_one_of_its_passages(
    answer: str, passages: list[str], article: str, tmp_path: Path, run_step: Callable[..., dict[str, Path]]
) -> None:
    texts = ["bird " * 12, "fish swims " * 12, "tree " * 12]
    tables: dict[str, dict[str, list[Any]]] = {
        "passages": {"id": ["a#1", "a#2"], "text": ["\n\n".join(texts), "one bird"], "article_id": [article] * 2},
        "queries": {"id": ["q1", "q2"], "text": ["which fish swims"] * 2},
        "qrels": {"query_id": ["q1", "q2"], "passage_id": ["a#1", "a#2"], "score": [1, 1], "split": ["test"] * 2},
        "answers": {"query_id": ["q1"] * bool(answer), "answer": [answer] * bool(answer)},
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    settings = {"source": str(tmp_path), "queries": "source", "split_tokens": 40}
    corpus = Corpus.open(run_step("ingest", {}, **settings)["corpus"])
    expected = [*(["q1", id] for id in passages), ["q2", "a#2"]]
    assert corpus.qrels[["query_id", "passage_id"]].to_numpy().tolist() == expected
    assert corpus.facts["documents"] == 1 and corpus.documents is not None
    assert corpus.documents.tolist() == [0, 0, 0, 1]
