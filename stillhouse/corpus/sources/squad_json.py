"""SQuAD 1.1 and 2.0: articles of paragraphs, questions about each, and the answers in it."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.corpus.answers import TEXT
from stillhouse.corpus.sources.json_files import read_document
from stillhouse.corpus.sources.lines import (
    IllTyped,
    identifier,
    list_field,
    object_of,
    placed,
    shown_id,
    spaceless,
    text_field,
)
from stillhouse.corpus.sources.options import Options
from stillhouse.corpus.sources.rows import (
    CONTENT_LENGTH,
    Answer,
    LeftOut,
    Passage,
    Qrel,
    Query,
    Rejected,
    Row,
    Source,
    split_in,
    whole,
)

SQUAD = "squad"
SUFFIXES = (".json", ".json.gz")


def open_squad(location: Path, options: Options) -> Source:
    """A SQuAD file or a folder of SQuAD files, each named after its split (`train-v1.1.json`).

    The k-th paragraph of an article, in the order of the files, is the passage `<article>#<k>` and relevant to its
    questions. Questions without an answer in their paragraph (SQuAD 2.0) are left out.
    """
    paths = squad_paths(location)
    if not paths:
        raise InputError(f"{location} has no .json file named after its split, such as train-v1.1.json")

    def rows() -> Iterator[Row]:
        paragraphs: Counter[str] = Counter()
        for path in paths:
            split = split_in(path.name)
            assert split is not None, "paths are chosen by their split"
            data = read_document(path)
            articles = data.get("data") if isinstance(data, dict) else None
            if not isinstance(articles, list):
                raise InputError(f"{path} has no list 'data' of articles, so it is not SQuAD JSON")
            for number, article in enumerate(articles, start=1):
                yield from _read_article(article, split, paragraphs, f"{path.name}:article {number}")

    return Source(SQUAD, {path.name: path for path in paths}, whole(rows))


def squad_paths(location: Path) -> list[Path]:
    """The JSON files of a folder whose names say a split, train first."""
    found = [location] if location.is_file() else sorted(location.iterdir())
    known = [path for path in found if path.is_file() and path.name.endswith(SUFFIXES) and split_in(path.name)]
    return sorted(known, key=lambda path: ("train", "dev", "test").index(split_in(path.name) or ""))


def _read_article(article: object, split: str, paragraphs: Counter[str], where: str) -> Iterator[Row]:
    try:
        fields = object_of(article)
        name = text_field(fields, "title")
        items = list_field(fields, "paragraphs")
    except IllTyped as reason:
        yield Rejected("passage", "", f"article: {reason}", where, str(article)[:CONTENT_LENGTH])
        return
    id, title = spaceless(name), name.replace("_", " ")
    for number, item in enumerate(items, start=1):
        place = f"{where}, paragraph {number}"
        paragraphs[id] += 1
        passage_id = f"{id}#{paragraphs[id]}"
        try:
            paragraph = object_of(item)
            context, questions = text_field(paragraph, "context"), list_field(paragraph, "qas")
        except IllTyped as reason:
            yield Rejected("passage", passage_id, str(reason), place, str(item)[:CONTENT_LENGTH])
            continue
        yield Passage(passage_id, title, context, id, "", paragraphs[id] - 1, place)
        for question in questions:
            yield from _read_question(question, passage_id, split, place)


def _read_question(item: object, passage_id: str, split: str, where: str) -> Iterator[Row]:
    try:
        fields = object_of(item)
        id, text = identifier(fields, ("id",)), text_field(fields, "question")
        answers = [text_field(object_of(answer), "text") for answer in list_field(fields, "answers")]
    except IllTyped as reason:
        shown = shown_id(placed(item), ("id",)) if isinstance(item, dict) else ""
        yield Rejected("query", shown, str(reason), where, str(item)[:CONTENT_LENGTH])
        return
    if fields.get("is_impossible") or not answers:
        yield LeftOut("query", "unanswerable")
        return
    yield Query(id, text, where)
    yield Qrel(id, passage_id, "1", split, where)
    for answer in answers:
        yield Answer(id, answer, TEXT, split, where)
