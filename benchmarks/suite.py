"""Compares everything that Stillhouse does with other libraries, at three sizes: seconds, peak memory, ratios.

    python benchmarks/suite.py --folder build/suite [--quick] [--data ../shared/data] [PART ...]
    python benchmarks/suite.py page --folder build/suite

Without PART all parts are measured; `--quick` takes the smallest size of each, once. Every measurement runs in a
process of its own. In a round all sides of a row take turns, so other work on the machine affects all equally. Ratios
are computed within a round, and the page shows their median. Results are kept, and a stopped run continues where it
was.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from notes import write_page
from own_process import measure, run_alone
from suite_page import render
from suite_parts import OURS, Job, Part, parts

HERE = Path(__file__).resolve().parent
ROUNDS = 1
"""It takes less than an hour on two cores; more show how far figures lie apart."""
PREPARE = "prepare"
PAGE = "page"
Result = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    every = parts()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(every)}; or {PAGE}, which measures nothing")
    parser.add_argument("--folder", type=Path, required=True, help="where inputs and results go")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--quick", action="store_true", help="the smallest size of each part, one round")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="measurements of each, of which the median counts")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch, faiss and NumPy; tokenizers take all cores")
    parser.add_argument("--page", type=Path, help="the page (default: suite.md here, of a quick run in --folder)")
    parser.add_argument("--one", nargs=4, metavar=("PART", "SIZE", "ROW", "SIDE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.one:
        print(json.dumps(measure_one(every, arguments)))
        return 0
    page = arguments.page or (arguments.folder if arguments.quick else HERE) / "suite.md"
    asked = [] if arguments.parts == [PAGE] else arguments.parts or list(every)
    if unknown := set(asked) - set(every):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; the parts are {', '.join(every)}")
    if arguments.rounds < 1 or arguments.threads < 1:
        parser.error("--rounds and --threads are at least 1")
    failures = [failure for name in asked for failure in run_part(every[name], arguments)]
    results = {name: read_results(arguments.folder, name) for name in every}
    if not any(results.values()):
        parser.error(f"{arguments.folder} has no results")
    write_page(page, render(every, results))
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


def job_of(part: Part, size: Any, arguments: argparse.Namespace) -> Job:
    place = arguments.folder / "inputs" / f"{part.name}-{part.sizes.index(size)}"
    return Job(size, place.resolve(), arguments.data.resolve())


def run_part(part: Part, arguments: argparse.Namespace) -> Iterator[str]:
    """Measures what has no result yet; returns what failed."""
    if lacking := [name for name in part.needs if not (arguments.data / name).is_dir()]:
        print(f"skipped: {part.name} needs {', '.join(lacking)}; give their folder with --data", file=sys.stderr)
        return
    for size in part.sizes[: 1 if arguments.quick else 3]:
        results = read_results(arguments.folder, part.name)
        missing = [
            key
            for key in keys(part, size, 1 if arguments.quick else arguments.rounds)
            if not any(key.items() <= result.items() for result in results)
        ]
        if not missing:
            continue
        folder = job_of(part, size, arguments).folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            run_one(part, size, PREPARE, PREPARE, arguments)
        except subprocess.CalledProcessError as error:
            yield f"{part.name}, {size}: its preparation ended with {error.returncode}"
            continue
        for key in missing:
            try:
                found = run_one(part, size, key["row"], key["side"], arguments)
            except subprocess.CalledProcessError as error:
                yield f"{part.name}, {size}, {key['row']}, {key['side']} ended with {error.returncode}"
                continue
            print(f"{part.name}, {size}, {key['row']}, {key['side']}: {found['seconds']:.3f} s", file=sys.stderr)
            results.append(key | found)
            write_results(arguments.folder, part.name, results)
        shutil.rmtree(folder)


def keys(part: Part, size: Any, rounds: int) -> Iterator[Result]:
    """What is to be measured of a size, in turns."""
    for number in range(rounds):
        for row in part.rows:
            for side in (OURS, *row.peers):
                module = side.split(",")[0]
                if side == OURS or importlib.util.find_spec(module):
                    yield {"row": row.name, "size": size, "side": side, "round": number}
                elif not number:
                    print(f"{part.name}: {module} is not installed and left out", file=sys.stderr)


def run_one(part: Part, size: Any, row: str, side: str, arguments: argparse.Namespace) -> Result:
    words = ["--folder", str(arguments.folder), "--data", str(arguments.data)]
    words += ["--one", part.name, str(part.sizes.index(size)), row, side]
    work = job_of(part, size, arguments).folder / "work"
    threads = {f"{library}_NUM_THREADS": str(arguments.threads) for library in ("OMP", "MKL", "OPENBLAS", "NUMBA")}
    quiet = {"STILLHOUSE_QUIET": "1", "STILLHOUSE_WORK": str(work), "HF_HUB_OFFLINE": "1"}
    return run_alone(HERE / "suite.py", words, **threads, **quiet) | {"threads": arguments.threads}


def measure_one(every: dict[str, Part], arguments: argparse.Namespace) -> Result:
    """One side of one row in this process, or the preparation of a size."""
    name, size, row, side = arguments.one
    part = every[name]
    job = job_of(part, part.sizes[int(size)], arguments)
    if side == PREPARE:
        part.prepare(job)
        return {}
    [chosen] = [each for each in part.rows if each.name == row]
    return measure((chosen.ours if side == OURS else chosen.peers[side])(job))


def read_results(folder: Path, part: str) -> list[Result]:
    path = folder / "results" / f"{part}.json"
    results: list[Result] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return results


def write_results(folder: Path, part: str, results: list[Result]) -> None:
    path = folder / "results" / f"{part}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    unfinished.rename(path)


if __name__ == "__main__":
    sys.exit(main())
