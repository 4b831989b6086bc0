"""Training files of FlagEmbedding, Tevatron and sentence-transformers: each row a question with its passages."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.dpr import query_id
from stillhouse.corpus.sources.lines import Fields, IllTyped, identifier, text_field
from stillhouse.corpus.sources.rows import LeftOut, Passage, Qrel, Query, Rejected, Row, Source, split_in, whole
from stillhouse.corpus.sources.training_rows import SUFFIXES, Columns, Given, columns_of, passages_in, read_rows

TRAINING = "training"


def open_training(location: Path) -> Source:
    """A training file, or a folder of such files, in the folder itself or in its `data/`.

    A file's name says its split; without one it is train. Questions of a split with the same text are one question. The
    passages are those of all rows: first the right ones, then the wrong ones, which are judged with the grade 0.
    """
    files = training_files(location)
    if not files:
        raise InputError(
            f"{location} has no training file: one of {', '.join(SUFFIXES)} with columns such as query, pos and neg, "
            "or anchor, positive and negative"
        )
    if location.is_dir():
        _refuse_others(location, files)
    return Source(TRAINING, {path.name: path for path in files}, whole(partial(_read, files)))


def training_files(location: Path) -> dict[Path, Columns]:
    """The training files of a folder, or the file itself, with their columns; {} if there are none."""
    found = {path: columns for path in _candidates(location) if (columns := columns_of(path))}
    if not found and location.is_dir() and (location / "data").is_dir():
        return training_files(location / "data")
    return found


def _candidates(location: Path) -> list[Path]:
    paths = sorted(location.iterdir()) if location.is_dir() else [location]
    return [path for path in paths if path.is_file() and path.name.endswith(SUFFIXES)]


def _refuse_others(location: Path, files: Mapping[Path, Columns]) -> None:
    """Refuses a file beside the training files that is data too, but cannot be read as they are."""
    folder = next(iter(files)).parent
    others = [path for path in _candidates(folder) if path not in files and ".json" not in path.suffixes]
    if others:
        raise InputError(
            f"{others[0]} has not the columns of a training file, as {next(iter(files)).name} has; move it away, or "
            f"name a single file of {location}"
        )


def _read(files: Mapping[Path, Columns]) -> Iterator[Row]:
    taken: set[int] = set()
    asked: dict[tuple[str, str], str] = {}
    text_of: dict[str, str] = {}
    named: set[int] = set()
    for path, columns in files.items():
        split = split_in(path.name) or "train"
        for number, row in enumerate(read_rows(path)):
            if isinstance(row, Rejected):
                yield row
                continue
            try:
                id, text, given = _question(path, number, row, columns)
                if (split, text) not in asked and text_of.setdefault(id, text) != text:
                    raise IllTyped("duplicate id, different text")
            except IllTyped as reason:
                yield Rejected("query", "", str(reason), row.where, row.content)
                continue
            if (split, text) not in asked:
                asked[split, text] = id
                yield Query(id, text, row.where)
            yield from _passages(given, row.where, taken)
            for passage in given:
                pair = asked[split, text], passage.id
                if (key := hash(pair)) not in named:
                    named.add(key)
                    yield Qrel(*pair, "1", split, row.where)
    yield from _read_wrong(files, taken, asked, named)


def _read_wrong(
    files: Mapping[Path, Columns],
    taken: set[int],
    asked: Mapping[tuple[str, str], str],
    named: set[int],
) -> Iterator[Row]:
    """The wrong passages, which come last: a passage may be right for the same question in another row."""
    for path, columns in files.items():
        split = split_in(path.name) or "train"
        for row in read_rows(path) if columns.negatives else ():
            if isinstance(row, Rejected) or not isinstance(text := row.get(columns.query), str):
                continue  # the first reading rejected it
            if (id := asked.get((split, text))) is None:
                continue
            try:
                given = passages_in(row, columns.negatives)
            except IllTyped as reason:
                yield Rejected("qrel", id, str(reason), row.where, row.content)
                continue
            yield from _passages(given, row.where, taken)
            for passage in given:
                if (key := hash((id, passage.id))) in named:
                    yield LeftOut("qrel", "the question has named its passage before")
                else:
                    named.add(key)
                    yield Qrel(id, passage.id, "0", split, row.where)


def _question(path: Path, number: int, row: Fields, columns: Columns) -> tuple[str, str, list[Given]]:
    """The id, the text and the right passages of a row. Raises `IllTyped`."""
    text = text_field(row, columns.query)
    known = columns.query_id and row.get(columns.query_id) is not None
    id = identifier(row, (columns.query_id,)) if known else query_id(path, number)
    given = passages_in(row, (columns.positives,))
    if not given:
        raise IllTyped(f"no {columns.positives}")
    return id, text, given


def _passages(given: list[Given], where: str, taken: set[int]) -> Iterator[Passage]:
    """The passages that are new: the same one may be right or wrong for any number of questions."""
    for passage in given:
        key = hash((passage.id, passage.text))
        if key not in taken:
            taken.add(key)
            yield Passage(passage.id, passage.title, passage.text, passage.id, "", 0, where)
