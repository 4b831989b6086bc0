"""Coverage-guided fuzzing of every reader, and of folders that users name, for a bounded time; `make fuzz` runs it.

    python tests/corpus/fuzz_readers.py beir --seconds 60

The fuzzer rewrites a file of a small complete source (`sources_to_damage`), a recipe or a run file. Either every row is
what a slow and obvious reader gives for the same bytes (`held_against_slow`), or the file is refused with `InputError`.
Anything else stops the fuzzer, which then leaves the input as `crash-...`. In a model folder (`models_to_damage`) JSON
fields are changed too, and a model that can be read must give finite numbers. `folder-flags` makes a tree of foreign
files and a name in it instead (`folder_flags`), and checks that none of them changed.
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
