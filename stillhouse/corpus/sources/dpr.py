"""The files of Dense Passage Retrieval: `psgs_w100.tsv`, training JSON, and question files with answers."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.corpus.answers import REGEX, TEXT
from stillhouse.corpus.sources.cells import TAB, by_form, is_row_by_itself, read_cells
from stillhouse.corpus.sources.json_files import read_elements
from stillhouse.corpus.sources.lines import IllTyped, identifier, list_field, object_of, placed, spaceless, text_field
from stillhouse.corpus.sources.options import Options
from stillhouse.corpus.sources.rows import (
    CONTENT_LENGTH,
    Answer,
    Each,
    LeftOut,
    Part,
    Passage,
    Qrel,
    Query,
    Rejected,
    Row,
    Source,
    split_in,
)
from stillhouse.corpus.sources.spans import WHOLE, Span, divide

DPR = "dpr"
COLUMNS = ("id", "text", "title")
CONTEXT_ID = ("passage_id", "psg_id")
PREFIX = "wiki:"
"""The prefix of passage numbers in some files."""

_PASSAGES = re.compile(r"psgs.*\.tsv(\.gz)?")
_TRAINING = re.compile(r".*\.json(\.gz)?")
_QUESTIONS = re.compile(r".*(\.qa|-qa)\.(csv|tsv)(\.gz)?")


def open_dpr(folder: Path, options: Options) -> Source:
    """A folder with `psgs_*.tsv[.gz]` and files of questions that name their split.

    Training JSON (`biencoder-nq-train.json`) has queries, positives and answers; its negatives are not read. Question
    files (`nq-test.qa.csv`) have queries and answers. A query's id is `<file>-<k>` for the k-th of its file, from 0.
    """
    passages = passage_files(folder)
    if len(passages) != 1:
        found = ", ".join(path.name for path in passages)
        raise InputError(f"{folder} has no psgs_*.tsv" if not found else f"{folder} has {found}; keep only one of them")
    others = [path for path in sorted(folder.iterdir()) if path.is_file() and path not in passages]
    training = [path for path in others if _TRAINING.fullmatch(path.name)]
    questions = [path for path in others if _QUESTIONS.fullmatch(path.name)]
    for path in (*training, *questions):
        if split_in(path.name) is None:
            raise InputError(
                f"{path}: its name does not say which split it is; add train, dev or test to the name, or move it away"
            )

    def rows() -> Iterator[Row]:
        # Positives without an id: text of the positive → the qrels that wait for a passage with this text.
        waiting: dict[str, list[Qrel]] = {}
        yield from _read_asked(training, questions, waiting)
        yield from _read_passages(passages[0], waiting)
        for qrels in waiting.values():
            for row in qrels:
                yield Rejected("qrel", row.query_id, "no passage has the text of its positive", row.where, "")

    def parts(size: int, each: Each) -> list[Part]:
        waiting: dict[str, list[Qrel]] = {}
        spans = divide(passages[0], size, each, is_row_by_itself)
        for path in training if len(spans) > 1 else ():
            for _ in _read_training(path, waiting, set()):
                if waiting:  # any passage may have the text of a positive without an id
                    return [Part(rows)]
        if len(spans) == 1:
            return [Part(rows)]
        asking = Part(partial(_read_asked, training, questions, {}))
        return [asking, *(Part(partial(_read_passages, passages[0], {}, span)) for span in spans)]

    return Source(DPR, {path.name: path for path in (*passages, *training, *questions)}, parts)


def _read_asked(training: Sequence[Path], questions: Sequence[Path], waiting: dict[str, list[Qrel]]) -> Iterator[Row]:
    asked: set[tuple[str, str]] = set()
    for path in training:
        yield from _read_training(path, waiting, asked)
    for path in questions:
        yield from _read_questions(path, asked)


def passage_files(folder: Path) -> list[Path]:
    """The passage files of a folder."""
    return [path for path in sorted(folder.iterdir()) if path.is_file() and _PASSAGES.fullmatch(path.name)]


def _read_passages(path: Path, waiting: dict[str, list[Qrel]], span: Span = WHOLE) -> Iterator[Row]:
    rows = read_cells(path, path.name, TAB, span)
    for row in by_form(rows, path.name, "passage", COLUMNS, heads=COLUMNS[:1] if span.is_first else ()):
        if isinstance(row, Rejected):
            yield row
            continue
        id = row["id"].removeprefix(PREFIX)
        yield Passage(id, row["title"], row["text"], article_id=id, section="", position=0, where=row.where)
        for qrel in waiting.pop(_words(row["text"]), ()) if waiting else ():
            yield qrel._replace(passage_id=id)


def _read_training(path: Path, waiting: dict[str, list[Qrel]], asked: set[tuple[str, str]]) -> Iterator[Row]:
    split, kind = split_in(path.name) or "", _kind(path)
    for number, element in enumerate(read_elements(path)):
        id, where = query_id(path, number), f"{path.name}:{number + 1}"
        content = str(element)[:CONTENT_LENGTH]
        try:
            fields = object_of(element)
            question, contexts = text_field(fields, "question"), list_field(fields, "positive_ctxs")
            answers = _texts(fields.get("answers", []))
        except IllTyped as reason:
            yield Rejected("query", id, str(reason), where, content)
            continue
        asked.add((split, question))
        yield Query(id, question, where)
        for answer in answers:
            yield Answer(id, answer, kind, split, where)
        for context in contexts:
            yield from _read_positive(context, Qrel(id, "", "1", split, where), waiting)


def _read_positive(context: object, qrel: Qrel, waiting: dict[str, list[Qrel]]) -> Iterator[Row]:
    try:
        fields = object_of(context, "positive is ")
        known = placed({name: value for name, value in fields.items() if value is not None})
        if any(name in known for name in CONTEXT_ID):
            yield qrel._replace(passage_id=identifier(known, CONTEXT_ID).removeprefix(PREFIX))
        else:
            waiting.setdefault(_words(text_field(fields, "text")), []).append(qrel)
    except IllTyped as reason:
        yield Rejected("qrel", qrel.query_id, str(reason), qrel.where, str(context)[:CONTENT_LENGTH])


def _read_questions(path: Path, asked: set[tuple[str, str]]) -> Iterator[Row]:
    split, kind, k = split_in(path.name) or "", _kind(path), -1
    for row in read_cells(path, path.name, "\t"):
        if isinstance(row, Rejected):
            yield row
            continue
        number, cells = row
        k += 1
        id, where, content = query_id(path, k), f"{path.name}:{number}", str(cells)[:CONTENT_LENGTH]
        try:
            if len(cells) != 2:
                raise IllTyped("not two columns (question, answers)")
            answers = _listed(cells[1])
        except IllTyped as reason:
            yield Rejected("query", id, str(reason), where, content)
            continue
        if (split, cells[0]) in asked:
            yield LeftOut("query", "the question stands in a training file of its split too")
            continue
        yield Query(id, cells[0], where)
        for answer in answers:
            yield Answer(id, answer, kind, split, where)


def _listed(cell: str) -> list[str]:
    """The texts of a list in Python or JSON syntax, which is parsed and never executed. Raises `IllTyped`."""
    try:
        value = ast.literal_eval(cell.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise IllTyped("answers are not a list of texts") from None
    return _texts(value)


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise IllTyped("answers are not a list of texts")
    return value


def _kind(path: Path) -> str:
    """The kind of a file's answers: regular expressions for CuratedTREC, else texts."""
    return REGEX if "curatedtrec" in re.sub("[^a-z]", "", path.name.lower()) else TEXT


def query_id(path: Path, number: int) -> str:
    """The id of a question that has none: its file's name without the suffix, and its number."""
    return f"{spaceless(Path(path.name.removesuffix('.gz')).stem)}-{number}"


def _words(text: str) -> str:
    return " ".join(text.split())
