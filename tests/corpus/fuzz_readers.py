"""Coverage-guided fuzzing of every reader, and of folders that users name, for a bounded time; `make fuzz` runs it.

    python tests/corpus/fuzz_readers.py beir --seconds 60

A file of a small whole source (`sources_to_damage`), a recipe or a run file is what the fuzzer makes of it. It is
read, and every row is what a slow and obvious reader makes of the same bytes (`held_against_slow`), or it is refused
with `InputError`; anything else stops the fuzzer, which then leaves the input as `crash-...`. Of a model folder
(`models_to_damage`) fields of JSON are changed as well, and the model that is read makes finite numbers.
`folder-flags` makes a tree of files of others and a name in it instead (`folder_flags`), and looks whether any of them
changed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

FOLDERS = [
    "stillhouse.own_files",
    "stillhouse.artifacts",
    "stillhouse.workflow.parser",
    "stillhouse.workflow.workspace",
]
READERS = ["stillhouse.corpus", "stillhouse.config", "stillhouse.evaluation.runs"]
MODELS = "model-folder"

with atheris.instrument_imports(include=[*READERS, *FOLDERS]):
    from fuzz_targets import SEEDS, reader

    from stillhouse.context import hush_libraries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=SEEDS)
    parser.add_argument("--seconds", type=int, default=60)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as seeds:
        for number, seed in enumerate(SEEDS[arguments.name]):
            (Path(seeds) / str(number)).write_bytes(seed)
        options = [f"-max_total_time={arguments.seconds}", "-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1"]
        words, mutator = [sys.argv[0], *options, seeds], {}
        if arguments.name == MODELS:
            hush_libraries()
            with atheris.instrument_imports(include=["stillhouse.retrieval", "stillhouse.pretraining"]):
                from fuzz_models import damaged

            def mutated(data: bytes, size: int, seed: int) -> bytes:
                return damaged(data, seed, lambda whole: atheris.Mutate(whole, size))[:size]

            mutator = {"custom_mutator": mutated}
        atheris.Setup(words, reader(arguments.name), **mutator)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
