"""The page of `serving.py`, from its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = {
    "stillhouse": "Stillhouse",
    "sentence-transformers": "sentence-transformers, faiss",
    "faiss": "faiss, in process",
    "postgresql": "Stillhouse, PostgreSQL with pgvector",
    "lancedb": "Stillhouse, LanceDB",
    "qdrant": "Stillhouse, Qdrant",
}
CPU = "CPU until then, s | CPU a question at 1, ms | at 8"
COLUMNS = "per s at 1 | p50 | p99 | per s at 8 | p50 | p99 | per s at 64 | p50 | p99"


def page_lines(found: Mapping[str, Any]) -> list[str]:
    lines = ["# Serving", "", f"`python -m benchmarks serving --folder build/serving --seconds {found['seconds']:g}`"]
    lines += ["", found["machine"], ""]
    lines += ["A question arrives over HTTP. MiniLM (6 layers of width 384) encodes its text, and the answer has the"]
    lines += ["ten nearest passages with their texts. Clients run in another process on the same cores for"]
    lines += [f"{found['seconds']:g} s and send the next question once they have an answer. Passages are synthetic:"]
    lines += ["short texts of random words, with the vectors of 2,000 encoded texts plus noise. recall@10 compares the"]
    lines += ["index with exact search over the same vectors, on 200 questions. Times are in milliseconds, and a"]
    lines += ["megabyte is 10⁶ bytes; *own* is memory that is not a mapped file's. faiss in process gets precomputed"]
    lines += ["vectors, 1, 8, 64 at once. Ours encodes queries in fp32. A store searches with an index of its own."]
    sizes = sorted({int(name.split("/")[2]) for name in found["cases"] if name.count("/") == 2})
    for size in sizes:
        lines += ["", f"## {size:,} passages", "", f"| index | system | recall@10 | {COLUMNS} |", "|---" * 12 + "|"]
        rows = [(name.split("/"), case) for name, case in found["cases"].items() if name.endswith(f"/{size}")]
        rows.sort(key=lambda row: (row[0][1], list(NAMES).index(row[0][0])))
        for (system, kind, _), case in rows:
            cells = [kind, NAMES[system], f"{case['recall@10']:.3f}"]
            cells += [f"{case[f'clients {n}'][name]:.1f}" for n in (1, 8, 64) for name in ("per_second", "p50", "p99")]
            lines.append(f"| {' | '.join(cells)} |")
        lines += [
            "",
            f"| index | system | ready, s | first answer, s | {CPU} | index, MB | RSS, MB | PSS, MB | own, MB |",
        ]
        lines += ["|---" * 11 + "|"]
        for (system, kind, _), case in rows:
            first = f"{case['first_answer']:.1f}" if "first_answer" in case else ""
            memory = [megabytes(case["memory"].get(name)) for name in ("rss", "pss", "anonymous")]
            cpu = [one(case, "cpu_first_answer"), *(one(case.get(f"clients {n}"), "cpu_ms") for n in (1, 8))]
            cells = [
                kind,
                NAMES[system],
                f"{case['ready']:.1f}",
                first,
                *cpu,
                f"{case['index_mb']:.0f}" if "index_mb" in case else "",
                *memory,
            ]
            lines.append(f"| {' | '.join(cells)} |")
        stores = [(NAMES[system], case) for (system, *_), case in rows if "published" in case]
        if stores:
            lines += ["", "| published to | s | CPU of the command, s | its own memory, MB |", "|---" * 4 + "|"]
        for name, case in stores:
            figures_of = [f"{case[figure]:.0f}" for figure in ("published", "publish_cpu")]
            cells = [name.partition(", ")[2], *figures_of, megabytes(case["publish_own"])]
            lines.append(f"| {' | '.join(cells)} |")
    embedded = [(system, found["cases"][f"{system}/embed"]) for system in NAMES if f"{system}/embed" in found["cases"]]
    if embedded:
        texts = embedded[0][1]["texts"]
        lines += [
            "",
            "## Embeddings",
            "",
            f"Passages a second from `/embed`, with {texts} in a request. *Per s of a core* divides by",
        ]
        lines += ["the processor time of a request, which the work of other processes does not lengthen.", ""]
        lines += ["| system | 1 client | 8 clients | per s of a core | lowest cosine with the library's vectors |"]
        lines += ["|---" * 5 + "|"]
        for system, case in embedded:
            speeds = [f"{texts * case[f'clients {clients}']['per_second']:.0f}" for clients in (1, 8)]
            speeds.append(f"{1000 * texts / case['clients 1']['cpu_ms']:.0f}")
            name = NAMES[system].split(",")[0]
            lines.append(f"| {name} | {' | '.join(speeds)} | {case['least_cosine']:.6f} |")
    return lines


def one(case: Mapping[str, Any] | None, name: str) -> str:
    return f"{case[name]:.1f}" if case and name in case else ""


def megabytes(mebibytes: float | None) -> str:
    return "" if mebibytes is None else f"{mebibytes * 2**20 / 1e6:.0f}"
