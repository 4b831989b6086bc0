"""Is the time that `stillhouse new` forecasts the time that the run then takes?

    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/forecasts.py --folder build/forecasts [--data ../shared/data]
        [--only scifact …] [--hours scifact=0.25 …] [--until wiki-intro=bm25 …] [--new-only mdn-articles …]

For each source, it runs `stillhouse new` and then `stillhouse run`, as a user would, with no times of earlier runs.
What a source gave is written to forecasts.measured.json beside this when it is done, so that the command goes on where
it was; --again measures a source anew. --forecast-again runs `new` again and forecasts the measured workspaces with
the present code. The page forecasts.md is written from that file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from forecasts_page import page_lines
from forecasts_run import Case, measure, predicted, said_again
from kept import read_kept
from notes import write_page
from quality_cells import Cell, Size, write_source

from stillhouse.artifacts import write_whole

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "forecasts.measured.json"
EMPTY, ONE, SAMPLE = "empty", "one-passage", "sample"
SETS = (
    "scifact",
    "squad-passages",
    "squad-json",
    "reqa-squad",
    "medquad",
    "peps-articles",
    "mdn-articles",
    "wiki-intro",
)
FEW = {"squad-20": ("squad-passages", 20), "medquad-60": ("medquad", 60)}
"""Sources of about 300 passages of a data set, with as many training questions, no dev and 150 test questions."""
NAMES = (EMPTY, ONE, SAMPLE, *FEW, *SETS)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parsed(argv)
    found = read_kept(MEASURED)
    folder = arguments.folder.resolve()
    for name in arguments.only or NAMES:
        source = source_of(name, folder, arguments.data)
        workspace = folder / name / "workspace"
        if source is None:
            print(f"skipped {name}: {arguments.data / name} is not here; name its parent with --data")
        elif arguments.forecast_again:
            if name in found:
                found[name] |= said_again(source, found[name]["flags"], folder / name)
            if name in found and workspace.is_dir():
                found[name] |= predicted(source, workspace)
        elif arguments.again or name not in found:
            print(name, flush=True)
            until = None if name in arguments.new_only else dict(arguments.until).get(name, "")
            found[name] = measure(Case(name, source, dict(arguments.hours).get(name, ""), until), folder / name)
        write_whole(MEASURED, json.dumps(found, indent=1) + "\n")
    if found:
        write_page(HERE / "forecasts.md", page_lines({name: found[name] for name in NAMES if name in found}))
    return 0


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where workspaces go")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--only", nargs="+", metavar="SOURCE", choices=NAMES, help="these sources")
    parser.add_argument("--hours", nargs="+", metavar="SOURCE=H", type=pair, default=[], help="what `new` is given")
    parser.add_argument("--until", nargs="+", metavar="SOURCE=STAGE", type=pair, default=[], help="the last stage")
    parser.add_argument("--new-only", nargs="+", metavar="SOURCE", choices=NAMES, default=[], help="without its run")
    parser.add_argument("--again", action="store_true", help="sources that are done, too")
    parser.add_argument("--forecast-again", action="store_true", help="with the present code, without a run")
    return parser.parse_args(argv)


def pair(text: str) -> tuple[str, str]:
    """`SOURCE=VALUE`. Raises `ArgumentTypeError` for any other text."""
    name, given, value = text.partition("=")
    if name not in NAMES or not given:
        raise argparse.ArgumentTypeError(f"must be SOURCE=VALUE with one of {', '.join(NAMES)}, not {text!r}")
    return name, value


def source_of(name: str, folder: Path, data: Path) -> str | None:
    """The source that `new` is given; None for a data set that is not here."""
    if name == SAMPLE:
        return SAMPLE
    if name in SETS:
        return str((data / name).resolve()) if (data / name).is_dir() else None
    made = folder / "sources" / name
    if name in FEW:
        corpus, train = FEW[name]
        if not made.is_dir() and (data / corpus).is_dir():
            write_source(Cell(corpus, "all", 1), Size(300, 0, 150), data, made, train)
        return str(made) if made.is_dir() else None
    made.mkdir(parents=True, exist_ok=True)
    if name == ONE:
        (made / "note.md").write_text("# Clocks\n\nShips carry accurate clocks to find their longitude.\n")
    return str(made)


if __name__ == "__main__":
    sys.exit(main())
