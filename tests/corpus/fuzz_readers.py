"""Coverage-guided fuzzing of every reader for a bounded time; `make fuzz` runs it.

    python tests/corpus/fuzz_readers.py beir --seconds 60

The fuzzer rewrites a file of a small complete source (`sources_to_damage`), a recipe or a run file. Either every row is
read, rejected or counted as left out, or the file is refused with `InputError`. Anything else stops the fuzzer, which
then leaves the input as `crash-...`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

READERS = ["stillhouse.corpus", "stillhouse.core.config", "stillhouse.evaluation.runs"]

with atheris.instrument_imports(include=READERS):
    from fuzz_targets import SEEDS, reader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=SEEDS)
    parser.add_argument("--seconds", type=int, default=60)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as seeds:
        for number, seed in enumerate(SEEDS[arguments.name]):
            (Path(seeds) / str(number)).write_bytes(seed)
        options = [f"-max_total_time={arguments.seconds}", "-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, seeds], reader(arguments.name))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
