"""ReQA: retrieval of a sentence together with its passage (Chang et al. 2020 §4.1).

A candidate is a passage of the corpus with the sentence as its title and the surrounding passage as its text. So every
model reads the sentence first and then its passage, as pre-training reads a title and its passage (Chang et al.: "a
pair of article title and passage"). Truncation removes some of the context, never the sentence.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.corpus.sentences import sentence_spans
from stillhouse.corpus.sources.json_files import read_document
from stillhouse.corpus.sources.labels import read_qrels, read_queries
from stillhouse.corpus.sources.lines import (
    Fields,
    IllTyped,
    identifier,
    made_of,
    read_objects,
    required_file,
    text_field,
)
from stillhouse.corpus.sources.options import REQA_SPLITS, Options
from stillhouse.corpus.sources.rows import LeftOut, Passage, Query, Rejected, Row, Source, whole

REQA = "reqa"
ID = ("_id", "id")
PARTS = {"train": "train", "valid": "dev", "test": "test"}
"""The lists of query ids in a file of splits, and the split that each becomes."""


def open_reqa(folder: Path, options: Options) -> Source:
    """A folder with `candidates.jsonl` (_id, p, sentence), `passages.jsonl` (_id, title, text), `queries.jsonl`,
    `qrels.tsv` (query → candidate) and files such as `split_80_20.json`, one of which `options.reqa_split` names.

    A candidate's article is its passage, and its section is the passage's title.
    """
    division = f"split_{options.reqa_split.replace('/', '_')}.json"
    names = ("passages.jsonl", "candidates.jsonl", "queries.jsonl", "qrels.tsv")
    files = {name: required_file(folder, name) for name in names}
    if not (folder / division).is_file():
        known = ", ".join(
            split for split in REQA_SPLITS if (folder / f"split_{split.replace('/', '_')}.json").is_file()
        )
        raise InputError(f"{folder} has no {division}; set reqa_split to one that is there ({known or 'none is'})")
    files[division] = folder / division

    def rows() -> Iterator[Row]:
        passages: dict[str, tuple[str, str]] = {}
        yield from _read_passages(files["passages.jsonl"], passages)
        yield from _read_candidates(files["candidates.jsonl"], passages)
        split_of = _read_splits(files[division])
        for query in read_queries(files["queries.jsonl"], files["queries.jsonl"].name):
            if isinstance(query, Query) and query.id not in split_of:
                yield LeftOut("query", f"in no part of {division}")
            else:
                yield query
        for qrel in read_qrels(files["qrels.tsv"], files["qrels.tsv"].name, ""):
            if isinstance(qrel, Rejected):
                yield qrel
            elif qrel.query_id in split_of:
                yield qrel._replace(split=split_of[qrel.query_id])
            else:
                yield LeftOut("qrel", f"its query is in no part of {division}")

    return Source(REQA, {path.name: path for path in files.values()}, whole(rows), candidates=True)


def candidates_of(passage: Passage, language: str) -> Iterator[Passage]:
    """The candidates of a passage, one per sentence: `<passage>:<k>`, counted from 1."""
    for number, (begin, end) in enumerate(sentence_spans(passage.text, language)):
        yield candidate(f"{passage.id}:{number + 1}", passage.text[begin:end], passage, number)


def candidate(id: str, sentence: str, passage: Passage, position: int) -> Passage:
    """A sentence and its passage as one passage of the corpus."""
    return Passage(id, sentence, passage.text, passage.id, passage.title, position, passage.where)


def _read_passages(path: Path, passages: dict[str, tuple[str, str]]) -> Iterator[Rejected]:
    def take(fields: Fields) -> tuple[()]:
        id = identifier(fields, ID)
        if id in passages:
            raise IllTyped("duplicate id")
        title = text_field(fields, "title", optional=True).replace("_", " ")
        passages[id] = (title, text_field(fields, "text"))
        return ()

    return made_of(read_objects(path, path.name), "passage", ID, take)


def _read_candidates(path: Path, passages: dict[str, tuple[str, str]]) -> Iterator[Row]:
    sentences: Counter[str] = Counter()

    def read(fields: Fields) -> Iterator[Passage]:
        id, sentence, owner = identifier(fields, ID), text_field(fields, "sentence"), identifier(fields, ("p",))
        if owner not in passages:
            raise IllTyped("points to no passage")
        if not sentence.strip():
            raise IllTyped("empty sentence")
        title, text = passages[owner]
        passage = Passage(owner, title, text, owner, "", 0, fields.where)
        yield candidate(id, sentence, passage, sentences[owner])
        sentences[owner] += 1

    return made_of(read_objects(path, path.name), "passage", ID, read)


def _read_splits(path: Path) -> dict[str, str]:
    """Query id → split. Raises `InputError` for a file in another form, and for a query in two lists."""
    lists = read_document(path)
    if not isinstance(lists, dict) or not all(isinstance(lists.get(part), list) for part in PARTS):
        raise InputError(f"{path} must hold the lists {', '.join(PARTS)} of query ids")
    split_of: dict[str, str] = {}
    for part, split in PARTS.items():
        for id in lists[part]:
            if split_of.setdefault(str(id), split) != split:
                raise InputError(f"{path} has query {id!r} in two lists; keep it in one")
    return split_of
