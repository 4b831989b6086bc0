"""Any dataset of the `ir_datasets` catalogue, by its id; the package downloads it, or says how to get it."""

from collections.abc import Iterator
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.corpus.answers import TEXT
from stillhouse.corpus.sources.rows import Answer, LeftOut, Passage, Qrel, Query, Rejected, Row, Source, split_in, whole

IR_DATASETS = "ir_datasets"
SCHEME = "ir_datasets:"
TEXT_FIELDS = ("text", "body", "contents", "content", "abstract", "passage", "main_content")
TITLE_FIELDS = ("title", "headline")
ALSO_CALLED = {"training": "train"}
"""Parts of ids (wikir's) that name splits but that `split_in` does not know."""
QUERY_FIELDS = ("text", "query", "question", "title")


def open_ir_datasets(source: str) -> Source:
    """`ir_datasets:<id>`, or ids of one corpus joined by +: `ir_datasets:beir/scifact/train+beir/scifact/test`.

    The last part of an id that names a split is the split of its queries; without one, it is test. A passage's title is
    the first of `TITLE_FIELDS` that a document has, and its text the first of `TEXT_FIELDS`, or else all its text
    (`default_text`). The text of a query is found likewise.
    Raises `InputError` if the package is missing, for an unknown id, and for ids of different corpora.
    """
    try:
        import ir_datasets
    except ImportError:
        raise InputError(f"{source} needs the package ir_datasets; run `pip install 'stillhouse[datasets]'`") from None
    ids = source.removeprefix(SCHEME).split("+")
    datasets: dict[str, Any] = {}
    for id in ids:
        try:
            datasets[id] = ir_datasets.load(id)
        except KeyError:
            raise InputError(f"ir_datasets has no dataset {id!r}; https://ir-datasets.com lists all datasets") from None
    parents = {ir_datasets.docs_parent_id(id) for id in ids}
    if len(parents) > 1:
        raise InputError(
            f"{source} joins ids of different corpora ({', '.join(sorted(map(str, parents)))}); give ids of one corpus"
        )
    if not datasets[ids[0]].has_docs():
        raise InputError(f"the dataset {ids[0]} has no documents; give an id with documents")

    def rows() -> Iterator[Row]:
        try:
            yield from _passages(datasets[ids[0]], ids[0])
            for id, dataset in datasets.items():
                yield from _labels(dataset, id)
        except (OSError, RuntimeError) as error:
            raise InputError(f"{source} could not be read ({error}); see https://ir-datasets.com/{ids[0]}") from None

    return Source(IR_DATASETS, {}, whole(rows), identity=source)


def split_of(id: str) -> str:
    """The split of a dataset's queries by its id."""
    found = [split for part in id.split("/") if (split := ALSO_CALLED.get(part) or split_in(part))]
    return found[-1] if found else "test"


def _passages(dataset: Any, id: str) -> Iterator[Row]:
    for number, document in enumerate(dataset.docs_iter(), start=1):
        where = f"{id}/docs:{number}"
        text = _first(document, TEXT_FIELDS)
        title = (_first(document, TITLE_FIELDS) or "") if text is not None else ""
        text = document.default_text() if text is None else text
        if isinstance(text, str) and not text.strip():  # a document with only a title is read by its title
            title, text = "", title
        if isinstance(text, str):
            yield Passage(str(document.doc_id), title, text, str(document.doc_id), "", 0, where)
        else:
            yield Rejected("passage", str(document.doc_id), "text is not text", where, "")


def _labels(dataset: Any, id: str) -> Iterator[Row]:
    split, judged = split_of(id), set[str]()
    if not dataset.has_queries():
        return
    if dataset.has_qrels():
        for number, qrel in enumerate(dataset.qrels_iter(), start=1):
            judged.add(qrel.query_id)
            relevance = str(max(0, qrel.relevance))  # below 0 is not relevant either, as trec_eval reads it
            yield Qrel(str(qrel.query_id), str(qrel.doc_id), relevance, split, f"{id}/qrels:{number}")
    for number, query in enumerate(dataset.queries_iter(), start=1):
        if query.query_id not in judged:
            yield LeftOut("query", "no qrel names it")
            continue
        for answer in getattr(query, "answers", None) or ():
            yield Answer(str(query.query_id), str(answer), TEXT, split, f"{id}/queries:{number}")
        text = _first(query, QUERY_FIELDS)
        yield Query(str(query.query_id), query.default_text() if text is None else text, f"{id}/queries:{number}")


def _first(record: Any, names: tuple[str, ...]) -> str | None:
    """The first of the fields that a record has and that is text."""
    return next((value for name in names if isinstance(value := getattr(record, name, None), str)), None)
