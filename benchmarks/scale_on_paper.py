"""What other sizes would take, computed from measured rates and from stated assumptions.

Processor times are measured rates multiplied by a size. GPU times are arithmetic: the operations of an encoder's matrix
products divided by an assumed share of the chip's published peak. Nothing was measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
Rates = Mapping[str, Mapping[str, Any]]

ON_PAPER = "## On paper"
SIZES = (10**5, 10**7, 10**8, 10**9)
WITH_A_MODEL = ("tokenize", "encode", "score", "train")
"""The rates that `scale.py models` measures, apart from the others."""
PASSAGE_PRECISION = 4
"""Bytes of a number in stored vectors."""
TOKEN_BYTES, PASSAGE_BYTES = 6, 17
"""Of the token cache: id, word start and sentence start a token; border, article, lead and title length a passage."""


def measured_rates(rows: Sequence[Row], settings: Row) -> dict[str, dict[str, Any]]:
    """The rates of the largest run, each with its unit and where it comes from."""
    smaller, larger = settings["smaller"], settings["passages"]
    by_task = {(row["task"], row["passages"]): row for row in rows}
    figures: dict[str, tuple[str, str, Callable[[Row, Row], float]]] = {
        "ingest": ("ingest JSONL", "passages a second of a core", _rate),
        "validate": ("validate", "passages a second of a core", _rate),
        "shard": ("shard", "passages a second of a core, without the model", _rate),
        "flat": ("index flat", "MiB of vectors a second of a core", lambda row, _: row["kept"] / row["processor"]),
        "search": (
            "search flat",
            "products of two numbers a second of a core",
            lambda row, _: min(1000, larger) * larger * settings["width"] / row["processor"],
        ),
        "counting": ("count n-grams", "tokens a second of a core", lambda row, _: row["tokens"] / row["processor"]),
        "counts_disk": ("count n-grams", "bytes a token", lambda row, _: row["kept"] * 2**20 / row["tokens"]),
        "corpus_disk": ("ingest JSONL", "bytes a passage", lambda row, _: row["kept"] * 2**20 / larger),
        "ingest_memory": ("ingest JSONL", "bytes a passage", _growth),
        "validate_memory": ("validate", "bytes a passage", _growth),
        "ids_memory": ("look up ids", "bytes a passage", _growth),
        "index_memory": ("index flat", "bytes a passage", _growth),
    }
    return {
        name: {
            "value": float(f"{figure(by_task[task, larger], by_task[task, smaller]):.4g}"),
            "unit": unit,
            "source": f"`{task}` of {larger:,} passages",
        }
        for name, (task, unit, figure) in figures.items()
        if {(task, larger), (task, smaller)} <= by_task.keys()
    }


def _rate(row: Row, _: Row) -> float:
    """By the processor's seconds, which other work on the machine lengthens less than those on the clock."""
    return float(row["passages"] / row["processor"])


def _growth(row: Row, smaller: Row) -> float:
    """Own memory that another passage takes."""
    return float((row["own"] - smaller["own"]) * 2**20 / (row["passages"] - smaller["passages"]))


def passage_operations(encoder: Mapping[str, int], tokens: int) -> float:
    """Operations of the matrix products of one forward pass over a passage, a multiplication and an addition each."""
    width = encoder["width"]
    return float(2 * encoder["layers"] * tokens * (12 * width**2 + 2 * tokens * width))


def on_paper(measured: Rates, assumed: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the section: the table, its rates, and what breaks at each size."""
    gpu = assumed["gpu"]
    yield ON_PAPER
    yield ""
    yield "Memory, disk and hours of a core are the rates below, which were measured here, multiplied by the size."
    yield f"**GPU-hours are arithmetic, not measurements**: operations of BERT-base over {100 * gpu['share']:.0f} %"
    yield f"of {gpu['peak_tflops']} TFLOP/s, the published dense bf16 peak of an {gpu['name']}; that share is assumed."
    yield f"Vectors have {assumed['encoder']['width']} numbers, passages {assumed['tokens']['passage']} tokens, and"
    yield f"every {assumed['queries']['for_passages']} passages have one train query. Work with a model is computed"
    yield "from the operations a second of a core, measured with all-MiniLM-L6-v2 (6 layers × 384). They are counted as"
    yield "if the last layer were computed whole, which is 14 % too fast for this model and 7 % for BERT-base. The"
    yield "larger matrices of BERT-base are probably computed faster. The command for those rates is"
    yield "`python benchmarks/scale.py models --folder build/scale`."
    yield ""
    yield f"| | {' | '.join(f'10{power(size)}' for size in SIZES)} |"
    yield "|---|" + "---|" * len(SIZES)
    for name, value, shown in lines_of(measured, assumed):
        yield f"| {name} | {' | '.join(shown(value(size)) for size in SIZES)} |"
    yield ""
    for title, key in (("What breaks first", "breaks"), ("What takes over", "takes_over")):
        yield from (f"{title}, by the number of passages:", "")
        yield from (f"- 10{power(size)}: {assumed['sizes'][size][key]}." for size in SIZES)
        yield ""
    yield "| rate | value | unit | from |"
    yield "|---|---|---|---|"
    for name, rate in measured.items():
        yield f"| {name} | {rate['value']:,g} | {rate['unit']} | {rate['source']} |"


def lines_of(
    measured: Rates, assumed: Mapping[str, Any]
) -> Iterator[tuple[str, Callable[[int], float], Callable[[float], str]]]:
    """What a line is called, its value of a size, and how that is written. Without its rate a line is left out."""
    tokens, width = assumed["tokens"]["passage"], assumed["encoder"]["width"]
    vector = width * PASSAGE_PRECISION
    rate = {name: found["value"] for name, found in measured.items()}
    products = assumed["search"]["queries"] * width
    speed = assumed["gpu"]["peak_tflops"] * 1e12 * assumed["gpu"]["share"]
    encoding = passage_operations(assumed["encoder"], tokens) / speed
    training = 3 * passage_operations(assumed["encoder"], assumed["tokens"]["pretraining"]) / speed
    learned = learned_operations(assumed)
    times: dict[str, tuple[str, float]] = {
        "`ingest`": ("ingest", 1),
        "`validate`": ("validate", 1),
        "n-gram counts": ("counting", tokens),
        "all shards, without the model": ("shard", 1),
        "a flat index of all shards": ("flat", vector / 2**20),
        f"exact search, {assumed['search']['queries']:,} queries": ("search", products),
        "`tokenize`": ("tokenize", tokens),
        "encoding": ("encode", passage_operations(assumed["encoder"], tokens)),
        **learned,
    }
    for name, (figure, each) in times.items():
        if figure in rate:
            yield f"hours of a core: {name}", lambda size, r=rate[figure], each=each: size * each / r / 3600, hours
    yield "**GPU-hours, arithmetic**: encoding", lambda size: size * encoding / 3600, hours
    yield "**GPU-hours, arithmetic**: one epoch of `mlm` or `bow`", lambda size: size * training / 3600, hours
    for name, (_, each) in learned.items():
        yield f"**GPU-hours, arithmetic**: {name}", lambda size, each=each: size * each / speed / 3600, hours
    memories = {"`ingest`": "ingest_memory", "`validate`": "validate_memory", "looking ids up": "ids_memory"}
    memories |= {"`index`, flat": "index_memory"}
    for name, figure in memories.items():
        if figure in rate:
            yield f"memory: {name}", lambda size, r=rate[figure]: size * r, size_of
    yield "memory: index `sq8`", lambda size: size * width, size_of
    yield "memory: index `ivfpq`", lambda size: size * (width / 4 + 8), size_of
    if "corpus_disk" in rate:
        yield "disk: corpus", lambda size: size * rate["corpus_disk"], size_of
    yield "disk: token cache", lambda size: size * (TOKEN_BYTES * tokens + PASSAGE_BYTES), size_of
    if "counts_disk" in rate:
        yield "disk: counts, at most", lambda size: size * tokens * rate["counts_disk"], size_of
    yield "disk: vectors; as much again a flat index", lambda size: size * vector, size_of


def learned_operations(assumed: Mapping[str, Any]) -> dict[str, tuple[str, float]]:
    """By step: the rate it goes by, and its operations for each passage of a corpus, which has its share of queries."""
    encoder, tokens, queries = assumed["encoder"], assumed["tokens"], assumed["queries"]
    passages, scored = queries["passages"], queries["scored"]
    pair = passage_operations(encoder, tokens["pair"])
    group = passage_operations(encoder, tokens["query"]) + passages * passage_operations(encoder, tokens["passage"])
    return {
        f"teacher scores, {scored} a query": ("score", scored * pair / queries["for_passages"]),
        f"an epoch of a retriever, {passages} passages a query": ("train", 3 * group / queries["for_passages"]),
    }


def power(size: int) -> str:
    """The exponent of a power of ten, raised."""
    return str(len(str(size)) - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def hours(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def size_of(value: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"
