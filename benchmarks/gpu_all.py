"""Everything that only a GPU can show, in order of value; writes gpu.md beside this script.

    pip install --no-index --target build/site --no-deps wheels/*.whl      where nothing can be downloaded; then
    PYTHONPATH=build/site python benchmarks/gpu_all.py --folder build/gpu --data ../shared/data [--seconds 480]

Each part is a program of its own. Its results are in `--folder` as soon as it ends, so a later call goes on where this
one stopped. A part that is not likely to end within `--seconds` is not begun. `--tiny` tries every part without a GPU,
`--only` names some parts, and `--page-only` writes the page from the results so far.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from notes import write_page

HERE = Path(__file__).resolve().parent
PAGE = HERE / "gpu.md"
TITLE = "On a GPU"


@dataclass(frozen=True)
class Part:
    """A program with the arguments for a GPU and, with `--tiny`, for a processor; `seconds` is about what it takes.

    `{folder}`, `{data}`, `{base}` and `{page}` in arguments are the folder of all results, that of the data sets, an
    encoder of BERT-base's size with random weights, and the page that the part writes.
    """

    name: str
    seconds: int
    program: str
    arguments: str
    tiny: str
    environment: tuple[tuple[str, str], ...] = ()


PARTS = (
    Part("base", 10, "gpu_encoding.py", "--only-model {base}", "--only-model {base} --layers 2 --width 64"),
    Part(
        "correctness",
        90,
        "gpu_tests.py",
        "--page {page} --processes 8",
        "--page {page} --processes 1 --device cpu",
    ),
    Part(
        "pretraining",
        60,
        "pretraining_speed.py",
        "--gpu-size --batch 256 --length 144 --rounds 2 --steps 4 --this-size-only --padding kept --page {page}",
        "--layers 1 --width 192 --batch 4 --length 24 --rounds 1 --steps 2 --this-size-only --objectives bow "
        "--page {page}",
    ),
    Part(
        "unpadded",
        25,
        "pretraining_speed.py",
        "--gpu-size --batch 256 --length 144 --rounds 2 --steps 4 --this-size-only --padding none "
        "--objectives bow simlm cdmae --page {page}",
        "--layers 2 --width 192 --batch 4 --length 24 --rounds 1 --steps 2 --this-size-only --padding none "
        "--objectives bow --page {page}",
    ),
    Part(
        "encoding",
        40,
        "gpu_encoding.py",
        "--passages 200000 --batch-tokens 16384 65536 --page {page}",
        "--passages 500 --layers 1 --width 96 --batch-tokens 512 --page {page}",
    ),
    Part(
        "search",
        45,
        "gpu_search.py",
        "--page {page}",
        "--passages 5000 --width 32 --queries 40 --depth 50 --rounds 1 --device cpu --page {page}",
    ),
    Part(
        "steps",
        60,
        "gpu_steps.py",
        "--model {base} --data {data} --page {page}",
        "--model {base} --data {data} --batch 4 --candidates 2 --steps 2 --rounds 1 --pairs 40 --page {page}",
    ),
    Part(
        "quality",
        240,
        "gpu_quality.py",
        "--folder {folder}/quality --data {data} --page {page}",
        "--folder {folder}/quality --data {data} --page {page} --tiny",
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the results go, part by part")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--seconds", type=float, default=3600, help="no part is begun that would end later than this")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these parts alone")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, for a machine without a GPU; writes no gpu.md")
    parser.add_argument("--page-only", action="store_true", help="write the page of the parts that were run")
    arguments = parser.parse_args(argv)
    begun = time.monotonic()
    places = {"folder": arguments.folder.resolve(), "data": arguments.data.resolve()}
    places["folder"].mkdir(parents=True, exist_ok=True)
    failed = []
    for part in [part for part in PARTS if part.name in arguments.only and not arguments.page_only]:
        left = arguments.seconds - (time.monotonic() - begun)
        if (record_of(part, places["folder"])).is_file():
            print(f"{part.name}: done before", flush=True)
        elif left < part.seconds:
            print(f"{part.name}: not begun, {left:.0f} s are left and it takes about {part.seconds}", flush=True)
        elif not run(part, places, left, arguments.tiny):
            failed.append(part.name)
    if not arguments.tiny:
        write_page(PAGE, page(places["folder"]))
    return 1 if failed else 0


def record_of(part: Part, folder: Path) -> Path:
    return folder / f"{part.name}.json"


def run(part: Part, places: Mapping[str, Path], seconds: float, tiny: bool) -> bool:
    """Runs a part, and records its command and time if it ends well; else its output stays in `NAME.log`."""
    folder = places["folder"]
    names = {**places, "base": folder / "base-model", "page": folder / f"{part.name}.md"}
    words = [word.format(**names) for word in (part.tiny if tiny else part.arguments).split()]
    command = [sys.executable, str(HERE / part.program), *words]
    begun = time.monotonic()
    print(f"{part.name}: begun, about {part.seconds} s", flush=True)
    with (folder / f"{part.name}.log").open("w", encoding="utf-8") as log:
        environment = os.environ | dict(part.environment)
        try:
            status = subprocess.run(
                command, stdout=log, stderr=subprocess.STDOUT, timeout=seconds, env=environment, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            status = -1
    took = time.monotonic() - begun
    print(f"{part.name}: {'ended' if status == 0 else f'failed with {status}'} after {took:.0f} s", flush=True)
    if status == 0:
        shown = " ".join([f"python benchmarks/{part.program}", *(part.tiny if tiny else part.arguments).split()])
        record_of(part, folder).write_text(json.dumps({"command": shown, "seconds": took}), encoding="utf-8")
    return status == 0


def page(folder: Path) -> list[str]:
    """The pages of all parts that have one, under one title."""
    lines = [f"# {TITLE}", "", "Command: `python benchmarks/gpu_all.py --folder build/gpu --data ../shared/data`."]
    for part in PARTS:
        made = folder / f"{part.name}.md"
        if record_of(part, folder).is_file() and made.is_file():
            text = made.read_text(encoding="utf-8").strip().splitlines()
            lines += ["", *(f"#{line}" if line.startswith("#") else line for line in text)]
    return lines


if __name__ == "__main__":
    sys.exit(main())
