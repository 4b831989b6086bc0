"""Must an index be rebuilt whenever its retriever is trained again?

    python -m benchmarks releases --folder build/releases [--data ../shared/data] [--corpora medquad] [--minutes 8]

Labels arrive in slices, and each release is trained from the one before it on all labels so far. Release 1 encodes all
passages; its index is the oldest. Three lines of releases start from it: `fine_tune` trains both sides, `query_only`
trains only the query tower, and `first` stays release 1. The new queries of each release search the oldest index and,
if passages changed, a full re-encode. The results of a release are written to releases.measured.json, so a stopped run
continues where it was; the page is written from that file. Seconds are processor time on one thread.
"""

from __future__ import annotations

import os
import time
from dataclasses import fields
from pathlib import Path

import torch

from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import kept_beside, read_kept, write_kept, write_page
from benchmarks.quality_cells import SETS
from benchmarks.releases_lines import LINES, Shape, Workplace
from benchmarks.releases_page import page_lines

CORPORA = ("medquad", "squad-passages", "scifact")


def main(argv: list[str] | None = None) -> int:
    parser = command("releases", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where sources and artifacts go")
    parser.add_argument("--corpora", nargs="+", choices=SETS, default=CORPORA)
    parser.add_argument("--lines", nargs="+", choices=LINES, default=list(LINES), help="these lines of releases")
    parser.add_argument("--releases", type=int, default=Shape.releases)
    parser.add_argument("--slice", type=int, default=Shape.slice, help="train questions that each release adds")
    parser.add_argument("--passages", type=int, default=Shape.passages)
    parser.add_argument("--test-queries", dest="test", type=int, default=Shape.test)
    parser.add_argument("--dev-queries", dest="dev", type=int, default=Shape.dev)
    parser.add_argument("--length", type=int, default=Shape.length, help="tokens that passages are cut to")
    parser.add_argument("--layers", type=int, default=Shape.layers, help="layers of the start that are kept; 0 = all")
    parser.add_argument("--minutes", type=float, default=0, help="begin no further release after so long; 0 = go on")
    given = parser.parse_args(argv)
    shape = Shape(**{field.name: getattr(given, field.name) for field in fields(Shape)})
    torch.set_num_threads(1)
    os.environ["STILLHOUSE_QUIET"] = "1"
    begun = time.monotonic()
    kept = kept_beside(given.page)
    found = read_kept(kept)
    for release in range(1, shape.releases + 1):
        for corpus in given.corpora:
            if not (given.data / corpus).is_dir():
                print(f"skipped {corpus}: {given.data / corpus} is not here; name its parent with --data")
                continue
            place = Workplace(corpus, shape, given.data.resolve(), given.folder.resolve() / corpus)
            for line in given.lines if release > 1 else ["first"]:
                about = place.about() | {"machine": machine("torch"), "flags": flags_of(shape)}
                own = found.setdefault(corpus, {"about": about, "releases": {}})
                if any(own["about"].get(name) != value for name, value in about.items() if name != "machine"):
                    parser.error(f"{kept} holds results of other settings; name another page by --page")
                key = f"{release} {line}"
                if key in own["releases"] or (line == "first" and release > 1):
                    continue
                if given.minutes and time.monotonic() - begun > 60 * given.minutes:
                    return 0
                own["releases"][key] = place.release(release, line)
                write_kept(kept, found)
    if found:
        write_page(given.page, page_lines(found))
    return 0


def flags_of(shape: Shape) -> str:
    """The flags that ask for this shape."""
    names = {"test": "test-queries", "dev": "dev-queries"}
    changed = {field.name: getattr(shape, field.name) for field in fields(Shape)}
    changed = {name: value for name, value in changed.items() if value != getattr(Shape, name)}
    return "".join(f" --{names.get(name, name)} {value}" for name, value in changed.items())
