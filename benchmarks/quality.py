"""Is the retriever that comes out better than BM25, than its start, and than what sentence-transformers makes?

    python -m benchmarks quality --folder build/quality [--data ../shared/data] [--only medquad-all-1 …]

A cell is a corpus, the number of its labels that are used, and a seed. In each, `stillhouse new` chooses the recipe and
`stillhouse run` does it; then the recipe of sentence-transformers trains from the same start on the same questions for
as much processor time. All systems are searched and measured alike, on the same test questions. What a side of a cell
gave is written to quality.measured.json when it is done, so that the command goes on where it was; the page is written
from that file. Needs `pip install datasets accelerate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import kept_beside, read_kept, write_kept, write_page
from benchmarks.quality_cells import CELLS, SIZE, Cell, Size, prepare
from benchmarks.quality_page import page_lines
from benchmarks.quality_run import PEER, SECONDS, run_ours, run_peer


def main(argv: list[str] | None = None) -> int:
    parser = command("quality", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where sources and artifacts go")
    parser.add_argument("--only", nargs="+", metavar="CELL", choices=[cell.name for cell in CELLS], help="these cells")
    parser.add_argument("--no-peer", action="store_true", help="leave sentence-transformers to another time")
    parser.add_argument("--again", action="store_true", help="cells that are done, too")
    parser.add_argument(
        "--passages", type=int, default=SIZE.passages, help="passages of a corpus, or more, where its questions need"
    )
    parser.add_argument("--dev-queries", type=int, default=SIZE.dev)
    parser.add_argument("--test-queries", type=int, default=SIZE.test)
    parser.add_argument("--length", type=int, default=128, help="tokens that passages are cut to, on both sides")
    arguments = parser.parse_args(argv)
    size = Size(arguments.passages, arguments.dev_queries, arguments.test_queries)
    kept = kept_beside(arguments.page)
    found = read_kept(kept)
    for cell in CELLS:
        if arguments.only and cell.name not in arguments.only:
            continue
        own = {} if arguments.again else found.get(cell.name, {})
        if own and (cell.labels == "none" or arguments.no_peer or PEER in own["ranks"]):
            continue
        if not (arguments.data / cell.corpus).is_dir():
            print(f"skipped {cell.name}: {arguments.data / cell.corpus} is not here; name its parent with --data")
            continue
        folder = arguments.folder.resolve() / cell.name
        prepare(cell, size, arguments.data.resolve(), folder)
        if arguments.again:
            (folder / SECONDS).unlink(missing_ok=True)
        if not own:
            own = run_ours(cell, folder, arguments.length) | {"machine": machine("torch", "transformers")}
            keep(kept, found, cell, own)
        if cell.labels != "none" and not arguments.no_peer:
            own["ranks"] |= run_peer(cell, folder, arguments.length, own["seconds"])
            keep(kept, found, cell, own)
    if found:
        write_page(arguments.page, page_lines(found, size, arguments.length))
    return 0


def keep(kept: Path, found: dict[str, Any], cell: Cell, own: dict[str, Any]) -> None:
    found[cell.name] = own
    write_kept(kept, found)
