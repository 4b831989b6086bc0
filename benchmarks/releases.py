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
from pathlib import Path

import torch

from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import kept_beside, read_kept, write_kept, write_page
from benchmarks.quality_cells import BEIR
from benchmarks.releases_lines import LINES, Workplace
from benchmarks.releases_page import page_lines


def main(argv: list[str] | None = None) -> int:
    parser = command("releases", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where sources and artifacts go")
    parser.add_argument("--corpora", nargs="+", choices=BEIR, default=BEIR)
    parser.add_argument("--releases", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=0, help="begin no further release after so long; 0 = go on")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    os.environ["STILLHOUSE_QUIET"] = "1"
    begun = time.monotonic()
    kept = kept_beside(given.page)
    found = read_kept(kept)
    for release in range(1, given.releases + 1):
        for corpus in given.corpora:
            if not (given.data / corpus).is_dir():
                print(f"skipped {corpus}: {given.data / corpus} is not here; name its parent with --data")
                continue
            place = Workplace(corpus, given.releases, given.data.resolve(), given.folder.resolve() / corpus)
            for line in LINES if release > 1 else ["first"]:
                about = place.about() | {"machine": machine("torch")}
                own = found.setdefault(corpus, {"about": about, "releases": {}})
                if any(own["about"].get(name) != value for name, value in about.items() if name != "machine"):
                    parser.error(f"{kept} holds results of other settings; name another page by --page")
                key = f"{release} {line}"
                if key in own["releases"]:
                    continue
                if given.minutes and time.monotonic() - begun > 60 * given.minutes:
                    return 0
                own["releases"][key] = place.release(release, line)
                write_kept(kept, found)
    if found:
        write_page(given.page, page_lines(found))
    return 0
