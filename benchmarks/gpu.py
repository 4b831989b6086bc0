"""Everything that only a GPU can show, in order of value.

    python -m benchmarks gpu --folder build/gpu --data ../shared/data [--seconds 480]

`gpu_kit.py` packs what it needs for a machine that can fetch nothing.
Each part is a module of its own. Its results are in `--folder` as soon as it ends, so a later call goes on where this
one stopped, and `--again` repeats parts. A part that is not likely to end within `--seconds` is not begun. `--tiny`
tries every part without a GPU, `--only` names some parts, and `--seconds 0` writes the page from the results so far.
"""

from __future__ import annotations

import json
import signal
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch
import yaml

from benchmarks.command import HERE, command
from benchmarks.page import section, write_page
from stillhouse.kubeflow.pods.stage import free_memory

TITLE = "On a GPU"
SLOWEST = 2.0
"""A part is stopped after this many times the seconds it should take, so that others have their turn."""


@dataclass(frozen=True)
class Part:
    """A module beside this one with its arguments for a GPU and, with `--tiny`, for a processor.

    `title` is that of its section on the page, `seconds` about what it takes. All run in one process, because starting
    one takes ten seconds there.

    `{folder}`, `{data}`, `{base}` and `{page}` in arguments are the folder of all results, that of the data sets, an
    encoder of BERT-base's size with random weights, and the page that the part writes.
    """

    name: str
    title: str
    seconds: int
    program: str
    arguments: str
    tiny: str


PARTS = tuple(Part(**part) for part in yaml.safe_load((HERE / "gpu_parts.yaml").read_text(encoding="utf-8")))


def main(argv: Sequence[str] | None = None) -> int:
    names = [part.name for part in PARTS]
    parser = command("gpu", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the results go, part by part")
    parser.add_argument("--seconds", type=float, default=3600, help="no part is begun that would end later than this")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these parts alone")
    parser.add_argument("--again", action="store_true", help="repeat parts that are done")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, for a machine without a GPU; writes no page")
    arguments = parser.parse_args(argv)
    begun = time.monotonic()
    places = {"folder": arguments.folder.resolve(), "data": arguments.data.resolve()}
    places["folder"].mkdir(parents=True, exist_ok=True)
    failed = []
    for part in [part for part in PARTS if part.name in arguments.only]:
        left = arguments.seconds - (time.monotonic() - begun)
        if record_of(part, places["folder"]).is_file() and not arguments.again:
            print(f"{part.name}: done before", flush=True)
        elif left < part.seconds:
            print(f"{part.name}: not begun, {left:.0f} s are left and it takes about {part.seconds}", flush=True)
        elif not run(part, places, left, arguments.tiny):
            failed.append(part.name)
        if not arguments.tiny:
            write_page(arguments.page, page(places["folder"]))
        if failed and broken():
            print("the GPU no longer answers this process: type the command again", flush=True)
            break
    return 1 if failed else 0


def broken() -> bool:
    """Whether an error of a part has spoilt the GPU for all work of this process."""
    try:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def record_of(part: Part, folder: Path) -> Path:
    return folder / f"{part.name}.json"


def run(part: Part, places: Mapping[str, Path], seconds: float, tiny: bool) -> bool:
    """Runs a part, and records its time if it ends well; its output is in `NAME.log` either way."""
    folder = places["folder"]
    names = {**places, "base": folder / "base-model", "page": folder / f"{part.name}.md"}
    words = [word.format(**names) for word in (part.tiny if tiny else part.arguments).split()]
    begun = time.monotonic()
    print(f"{part.name}: begun, about {part.seconds} s", flush=True)
    record_of(part, folder).unlink(missing_ok=True)
    log_file = (folder / f"{part.name}.log").open("w", encoding="utf-8", buffering=1)
    with log_file as log, redirect_stdout(log), redirect_stderr(log):
        try:
            with at_most(seconds if tiny else min(seconds, max(60, SLOWEST * part.seconds))):
                status = import_module(f"benchmarks.{part.program}").main(words)
        except (Exception, SystemExit):
            traceback.print_exc(file=log)
            status = 1
    free_memory()
    took = time.monotonic() - begun
    print(f"{part.name}: {'ended' if status == 0 else 'failed'} after {took:.0f} s", flush=True)
    if status == 0:
        record_of(part, folder).write_text(json.dumps({"seconds": took}), encoding="utf-8")
    return status == 0


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises `TimeoutError` if the block has not ended by then."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done in {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def page(folder: Path) -> list[str]:
    """The pages of all parts that have one, under one title."""
    lines = [f"# {TITLE}", "", "Command: `python -m benchmarks gpu --folder build/gpu --data ../shared/data`.", ""]
    lines += [(HERE / "gpu.about.md").read_text(encoding="utf-8").strip()]
    for part in PARTS:
        made = folder / f"{part.name}.md"
        if made.is_file():
            lines += section(made, part.title)
            lines += [] if record_of(part, folder).is_file() else ["", "This part did not end."]
    return lines
