"""Tries base models on the dev questions of a source and takes the best, alone or with BM25, for `stillhouse new`.

The winner is chosen as in a run, by the step `select-best`, on a sample of the passages that holds the right answers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from stillhouse.core.config import build
from stillhouse.core.context import QUIET, WORK_ROOT
from stillhouse.core.environment import environment_variables
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing, in_words
from stillhouse.core.own_machine import own_memory
from stillhouse.core.terminal import show
from stillhouse.models.model_table import MANY, at_hand, base_models
from stillhouse.pipeline.recipe_choice import passage_length
from stillhouse.pipeline.start_model import Start, start_of
from stillhouse.pipeline.step_times import Scale, layer_weights, mean_tokens, on_processor, predicted_seconds
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.pipeline.steps.select_best import NOTHING
from stillhouse.pipeline.steps.spec import Report

if TYPE_CHECKING:
    from stillhouse.corpus.first_look import FirstLook

AUTO = "auto"
PASSAGES, QUESTIONS = 500, 100
"""The passages drawn beside the right answers, and the dev questions."""
TIMED = 20
"""The questions that are timed one by one."""
QUERY_LENGTH = 64
"""The length of a question in tokens, as in the recipes."""
SECONDS, SHARE = 180.0, 0.1
"""How long the choice may take, in seconds, or as a share of `--hours`."""
MEMORY_SHARE = 4
"""Weights that fill more than a fourth of the memory leave too little for training."""


def starts_of(model: str) -> list[Start]:
    """The base models that `--model` names: one, several divided by commas, `auto`, or the table FILE.csv.

    Of a table, only those on this machine that can be opened. Raises `InputError` as `start_of` does, and if none is.
    """
    if not _is_table(model):
        names = [name.strip() for name in model.split(",") if name.strip()] or [model]
        return [start_of(str(Path(name).expanduser()) if name.startswith("~") else name) for name in names]
    found = []
    for row in base_models(None if model == AUTO else Path(model).expanduser()):
        with suppress(InputError):
            found += [start_of(row["name"])] if at_hand(row["name"]) else []
    if not found:
        raise InputError(
            "no model of the table is on this machine; `stillhouse models` lists them, and --model with a name "
            "fetches one"
        )
    return found


def _is_table(model: str) -> bool:
    return model == AUTO or model.endswith(".csv")


def chosen(starts: Sequence[Start], model: str, look: FirstLook | None, ingest: Any, hours: float | None) -> Start:
    """The best of several base models for the source of `ingest`; shows what was measured.

    Without dev or training questions, the choice is by language and published score.
    """
    if len(starts) == 1:
        if _is_table(model):
            show(f"nothing was measured: {starts[0].name} is the only model of the table on this machine")
        return starts[0]
    if look is None or not {"train", "dev"} & look.questions.keys():
        return _recommended(starts, model, look)
    from stillhouse.search.winner import contender_name

    until = time.monotonic() + (SHARE * 3600 * hours if hours else SECONDS)
    with tempfile.TemporaryDirectory() as place, environment_variables({WORK_ROOT: place, QUIET: "yes"}):
        root = Path(place)
        _step("ingest", root / "whole", config=replace(ingest, queries="source", max_dev_queries=QUESTIONS))
        passages = _sample(root / "whole" / "corpus", root / "source")
        _step("ingest", root, source=str(root / "source"), titles=ingest.titles, queries="source")
        _step("bm25", root, {"corpus": root / "corpus"})
        tried: dict[str, tuple[Start, tuple[float, int]]] = {}
        for start in sorted(starts, key=_bytes):
            if why := _too_large(start, look, passages, until):
                show(f"skipped {start.name}: it {why}")
                continue
            with doing(f"trying {start.name}"):
                tried[str(len(tried))] = start, _costs(start, look, root, root / str(len(tried)))
        if not tried:
            raise InputError(
                f"none of the models {', '.join(start.name for start in starts)} is small enough; name one with --model"
            )
        inputs = {"corpus": root / "corpus", "bm25": root / "bm25"}
        for name in tried:
            inputs |= {f"candidates/{name}": root / name / "encoder", f"indexes/{name}": root / name / "index"}
        facts = _step("select-best", root / "best", inputs, fusion="bm25").facts
    if facts["chosen_by"] == NOTHING:
        return _recommended(starts, model, look)
    for name, (start, (milliseconds, size)) in tried.items():
        alone, both = (facts["dev_rr10"][contender_name(name, with_bm25)] for with_bm25 in (False, True))
        show(
            f"{start.name}: RR@10 {alone:.3f} alone, {both:.3f} with BM25; {milliseconds:.0f} ms a query, "
            f"{size / 1000 / passages:.2f} MB of index for 1,000 passages"
        )
    best, (start, _) = facts["winner"], tried[facts["retriever"]]
    also = "" if best == facts["retriever"] else " with BM25"
    show(
        f"the best is {start.name}{also}, by the likelihood of the right answers to {facts['queries']} dev questions "
        f"among {passages:,} passages"
    )
    return start


def _costs(start: Start, look: FirstLook, root: Path, own: Path) -> tuple[float, int]:
    """Fetch a model into `own` and index the sample in `root`; the median milliseconds of a question, and the bytes of
    the index."""
    from stillhouse.corpus.store import Corpus
    from stillhouse.search.searcher import Searcher

    _step("fetch-model", own, model=start.name, passage_length=passage_length(look, start), query_length=QUERY_LENGTH)
    size = _step("index", own, {"corpus": root / "corpus", "retriever": own / "encoder"}).facts["bytes"]
    searcher = Searcher.open(root / "corpus", own / "encoder", own / "index")
    questions = Corpus.open(root / "corpus").queries_of("dev")["text"].tolist()
    took = []
    for question in questions[:1] + questions[:TIMED]:  # the first answer also loads the model
        started = time.perf_counter()
        searcher.search(question, 10)
        took.append(time.perf_counter() - started)
    return 1000 * median(took[1:] or [0.0]), size


def _too_large(start: Start, look: FirstLook, passages: int, until: float) -> str:
    """Why a model is too large to be tried; empty if it is not. On a GPU, its run time cannot be predicted."""
    if _bytes(start) > own_memory() / MEMORY_SHARE:
        return "needs too much memory"
    with suppress(KeyError, TypeError, ValueError):  # not a Transformer, or one that does not say how large it is
        if on_processor():
            tokens = mean_tokens(look.lengths, passage_length(look, start))
            scale = Scale(passages, {"dev": QUESTIONS}, tokens, layer_weights(start.config))
            seconds = predicted_seconds("index", find_step("index").config(), scale)
            if time.monotonic() + seconds > until:
                return f"would take {in_words(seconds)}; give more --hours: a tenth of them is for choosing the model"
    return ""


def _recommended(starts: Sequence[Start], model: str, look: FirstLook | None) -> Start:
    """Among the models for the corpus's language, the one with the highest published score, or else the smallest."""
    from stillhouse.search.bm25 import language_of

    rows = {row["name"]: row for row in base_models(Path(model).expanduser() if model.endswith(".csv") else None)}
    language = language_of(look.texts) if look else ""

    def rank(start: Start) -> tuple[bool, float, int]:
        row = rows.get(start.name, {})
        reads = not language or row.get("language") in (language, MANY)
        return reads, float(row.get("ndcg10") or 0), -_bytes(start)

    best = max(starts, key=rank)
    show(
        f"the source has no dev questions, so nothing was measured: {best.name} was chosen by language, published "
        "score and size"
    )
    return best


def _step(
    name: str, output: Path, inputs: Mapping[str, Path] | None = None, *, config: Any = None, **own: Any
) -> Report:
    """Runs a step into folders of `output`, named as its outputs."""
    step = find_step(name)
    outputs = {port.name: output / port.name for port in step.outputs}
    return execute(step, config or build(step.config, own, name), inputs or {}, outputs)


def _sample(corpus_folder: Path, folder: Path) -> int:
    """Write tables with the dev questions, their answers and `PASSAGES` other passages; returns how many passages."""
    import numpy as np

    from stillhouse.corpus.schemas import SCHEMAS
    from stillhouse.corpus.store import Corpus, write_tables

    corpus = Corpus.open(corpus_folder)
    relevant, queries = corpus.relevant("dev"), corpus.queries_of("dev")
    drawn = np.random.default_rng(0).permutation(corpus.passage_count)[:PASSAGES]
    rows = np.union1d(corpus.rows_of(relevant["passage_id"].unique()), drawn)
    passages = corpus.passages_at(rows, *SCHEMAS["passages"].names)
    tables = {"passages": passages, "queries": queries, "qrels": relevant}
    folder.mkdir()
    write_tables(folder, {name: {str(key): list(table[key]) for key in table} for name, table in tables.items()})
    return len(rows)


def _bytes(start: Start) -> int:
    """The size of a model's weights; 0 if they are not on this machine yet."""
    from stillhouse.models.model_place import place_of

    folder = place_of(start.name)
    return sum(file.stat().st_size for file in folder.rglob("*.safetensors")) if folder else 0
