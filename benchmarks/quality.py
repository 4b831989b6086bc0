"""Is the retriever that comes out better than BM25, than its start, and than what sentence-transformers makes?

    python -m benchmarks quality --folder build/quality [--data ../shared/data] [--only medquad-1 …]

A cell is a corpus and a seed. In each, `stillhouse new` chooses the recipe and `stillhouse run` does it; then the
recipe of sentence-transformers trains the same base model on the same questions for as much processor time. All systems
are searched and measured alike, on the same test questions. What a side of a cell gave is written to
quality.measured.json when it is done, so that the command goes on where it was; the page is written from that file.
Needs `pip install datasets accelerate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import kept_beside, read_kept, write_kept, write_page
from benchmarks.quality_cells import CELLS, HOURS, Cell, prepare
from benchmarks.quality_page import page_lines
from benchmarks.quality_run import BOTH, MEASURE, run_ours, run_peer


def main(argv: list[str] | None = None) -> int:
    parser = command("quality", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where sources and artifacts go")
    parser.add_argument("--only", nargs="+", metavar="CELL", choices=[cell.name for cell in CELLS], help="these cells")
    arguments = parser.parse_args(argv)
    kept = kept_beside(arguments.page)
    found = read_kept(kept)
    for cell in CELLS:
        if arguments.only and cell.name not in arguments.only:
            continue
        own = found.get(cell.name, {})
        if own and BOTH in own["values"][MEASURE]:
            continue
        folder = arguments.folder.resolve() / cell.name
        try:
            prepare(cell, arguments.data.resolve(), folder)
        except FileNotFoundError as missing:
            print(f"skipped {cell.name}: {missing.filename} is not here; name the data's folder with --data")
            continue
        if not own or not (folder / "seconds").is_file():
            own = run_ours(folder, ["--hours", str(HOURS)], cell.seed) | {"machine": machine("torch", "transformers")}
            keep(kept, found, cell, own)
        for measure, values in run_peer(folder, own["seconds"], cell.seed).items():
            own["values"][measure] |= values
        keep(kept, found, cell, own)
    if found:
        write_page(arguments.page, page_lines(found))
    return 0


def keep(kept: Path, found: dict[str, Any], cell: Cell, own: dict[str, Any]) -> None:
    found[cell.name] = own
    write_kept(kept, found)
